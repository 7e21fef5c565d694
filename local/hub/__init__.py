"""Serves fixture repositories over the Hugging Face Hub's HTTP API, for the unmodified huggingface_hub client."""
