"""Measurements against a named peer, in the same run on the same machine. See bench/README.md."""
