"""The HTTP API: verbs, discovery, watches, encodings. What a request may do is decided in access and rules."""
