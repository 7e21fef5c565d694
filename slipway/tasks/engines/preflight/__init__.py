"""What plan checks before any GPU is requested: options, metadata on the Hub, and memory."""
