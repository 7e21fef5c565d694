"""The stack's S3: moto behind a check of every request's signature and rights, and a folder that persists objects."""
