"""Counts tokens with a release's own tokenizer."""

from tasks.contracts.errors import InputError

QUOTED_CHARS = 160


class TokenCounter:
    """Counts the tokens of a text, without special tokens. Safe to use from several threads."""

    def __init__(self, tokenizer_json: bytes) -> None:
        """Read a Hugging Face tokenizer.json.

        Raises:
            InputError: `tokenizer_json` is not one.
        """
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_str(tokenizer_json.decode())
        except Exception as error:  # tokenizers 0.22 raises plain Exception
            raise InputError(
                f"tokenizer.json cannot be read: {str(error)[:QUOTED_CHARS]}",
                remedy="Choose a revision whose tokenizer loads.",
            ) from error

    def count(self, text: str) -> int:
        """Number of tokens in `text`."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)
