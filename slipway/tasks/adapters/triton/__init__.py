"""Triton's HTTP and gRPC APIs, and the requests that are sent to it."""
