"""Wiring only."""
