"""What the pages that Slipway writes may do: be read. Pure."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Their Content Security Policy: no script runs and no request leaves, whatever a text in them says."""
