"""Benchmarks of transfers to and from object stores."""
