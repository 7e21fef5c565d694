"""The object store: artifacts, their digests and heads, and transfers to and from it."""
