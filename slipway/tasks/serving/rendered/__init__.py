"""Renders what a serving pod is made of: manifests, command lines, the Triton repository."""
