"""Simulates a day of releases: what saturates first, what a release waits for, and what each remedy buys."""
