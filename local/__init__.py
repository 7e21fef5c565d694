"""The embedded stack: what a laptop runs in place of Kubernetes, S3 and the Hugging Face Hub."""
