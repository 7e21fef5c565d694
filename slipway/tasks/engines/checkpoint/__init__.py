"""Hugging Face checkpoints: reading, checking and measuring them, whatever engine serves them."""
