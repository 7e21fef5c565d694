"""Documents in the object store: artifacts, plans, releases, channels, leases, attestations."""
