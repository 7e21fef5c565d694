"""What the model's own files say of its texts: tokenizer, chat template, channels, calls of tools."""
