"""Signatures and the keys that make them."""
