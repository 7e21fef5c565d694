"""Benchmarks of a serving pod: front, OpenAI routes, engine, load generator."""
