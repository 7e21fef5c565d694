"""What serves a release: command lines, manifests, the Triton repository, and processes of a serving pod."""
