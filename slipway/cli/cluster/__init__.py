"""Commands that prepare and check a cluster and its store."""
