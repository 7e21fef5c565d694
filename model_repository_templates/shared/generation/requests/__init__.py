"""What a request asks of a model: read, bounded and checked. Nothing here knows an engine."""
