"""Text of an answer that still grows, given out in whole characters. Computes only."""

from collections.abc import Sequence
from itertools import takewhile

UNFINISHED = "\ufffd"
"""What a decoder shows for bytes that are no whole character, or not yet."""

WINDOW_TOKENS = 64
KEPT_TOKENS = 16
"""A window is cut to its last tokens before it grows too long to be decoded at every step. Some are kept, because a
decoder may treat the first token of a text, and its leading space, in its own way."""


class TextStream:
    """Turns tokens that arrive one by one into pieces of text whose concatenation is the whole answer.

    It never decodes: the caller decodes `window` of many streams in one call, and hands each its text.
    """

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._given = ""

    def add(self, tokens: Sequence[int]) -> None:
        """Take new tokens."""
        self._tokens.extend(tokens)

    @property
    def window(self) -> Sequence[int]:
        """The tokens to decode."""
        return self._tokens

    def advance(self, text: str, *, final: bool) -> str:
        """The piece of text that is new and certain; a character that is not whole yet waits, unless this is `final`.

        Args:
            text: what `window` decodes to.
            final: no token follows.
        """
        certain = text if final else text.rstrip(UNFINISHED)
        if certain.startswith(self._given):
            new = certain[len(self._given) :]
        elif self._given.startswith(certain):
            return ""
        else:  # a decoder that tidies spaces changed its mind: what was given out stays
            new = certain[_shared_chars(certain, self._given) :]
        self._given = certain
        return new

    @property
    def is_long(self) -> bool:
        """Whether `cut` is due."""
        return len(self._tokens) >= WINDOW_TOKENS

    def kept(self) -> Sequence[int]:
        """What `cut` leaves of the window."""
        return self._tokens[-KEPT_TOKENS:]

    def cut(self, text: str) -> None:
        """Forget all but the last tokens, which decode to `text`."""
        self._tokens = list(self.kept())
        self._given = text.rstrip(UNFINISHED)


def _shared_chars(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
