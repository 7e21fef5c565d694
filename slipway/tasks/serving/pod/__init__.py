"""Programs that run inside a serving pod."""
