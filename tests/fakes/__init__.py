"""Hand-written stand-ins that implement the protocols of tasks.adapters."""
