"""Counts tokens with a release's own tokenizer."""

import random
from collections.abc import Sequence

from slipway.tasks.contracts.errors import InputError

QUOTED_CHARS = 160
WORD_BEGINS = ("\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}", "\N{LOWER ONE EIGHTH BLOCK}")
"""How tokenizers write the space before a word."""
TWICE = 2


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

    def made_up(self, lengths: Sequence[int], dice: random.Random) -> list[str]:
        """Texts of so many tokens each, of words that are one token wherever they stand; they make no sense.

        Raises:
            InputError: the tokenizer has no such words.
        """
        vocabulary = sorted(self._tokenizer.get_vocab())
        words = [word for each in vocabulary if (word := _word(each)) and self.count(f"{word} {word}") == TWICE]
        if not words:
            raise InputError(
                "the tokenizer has no words to make prompts of",
                found=f"{len(vocabulary)} tokens, none of which is a whole word of ASCII letters",
                remedy="Name a dataset in gate.benchmark.prompts in place of input_tokens.",
            )
        return [" ".join(dice.choices(words, k=length)) for length in lengths]


def _word(token: str) -> str:
    """The word that a token stands for with the space before it (byte-level BPE, SentencePiece); otherwise empty."""
    word = token[1:]
    return word if token.startswith(WORD_BEGINS) and word.isascii() and word.isalpha() else ""
