"""Commands that read, check or move files and stored models."""
