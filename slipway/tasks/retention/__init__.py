"""Deletes what the site's policy does not keep: docs/day-two.md, Retention."""
