"""What clients send, for each API, and the parameters and schemas in it. What becomes of it is in generation."""
