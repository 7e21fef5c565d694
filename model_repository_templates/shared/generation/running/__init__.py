"""Runs many requests at once on one engine: scheduling, delivery, cancelling, restarts."""
