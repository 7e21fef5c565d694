"""Judging measurements: expectations, statistics, comparisons, the harness, and the report."""
