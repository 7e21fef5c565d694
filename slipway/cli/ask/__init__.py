"""Commands that send prompts to a model."""
