"""Counts tokens with a release's own tokenizer."""


class TokenCounter:
    """How many tokens a text is, without special tokens. Safe to use from several threads."""

    def __init__(self, tokenizer_json: bytes) -> None:
        """`tokenizer_json` is a Hugging Face tokenizer.json."""
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_str(tokenizer_json.decode())

    def count(self, text: str) -> int:
        """Tokens in `text`."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)
