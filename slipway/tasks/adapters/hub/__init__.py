"""The Hugging Face Hub: revisions, files and downloads."""
