"""The release spec, its sections, and what rewrites or checks them alone. Nothing here knows a site."""
