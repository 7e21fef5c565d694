"""Who a caller is and what it may do: tokens, certificates, roles."""
