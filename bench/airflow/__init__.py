"""Benchmarks of planning, parsing, steps and runs."""
