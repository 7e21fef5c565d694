"""Formats that clients and servers exchange: JSON Schema, prompts, metrics, trace headers."""
