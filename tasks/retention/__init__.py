"""Deletes what the site's policy does not keep: docs/operations.md, Retention."""
