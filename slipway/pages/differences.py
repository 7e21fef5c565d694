"""Where two short texts differ, by words. Pure."""

import re
from difflib import SequenceMatcher
from typing import NamedTuple

from slipway.pages.texts import shown

ANSWER_CHARS = 2000
"""Of an answer; comparing takes time that grows with the square of its words."""


class Piece(NamedTuple):
    """A part of a text, and whether the other text lacks it at this place."""

    text: str
    differs: bool


def pieces(text: str, other: str) -> list[Piece]:
    """The pieces of `text`, in bounds."""
    words, others = (_words(shown(each, ANSWER_CHARS)) for each in (text, other))
    codes = SequenceMatcher(None, words, others, autojunk=False).get_opcodes()
    return [Piece("".join(words[start:end]), kind != "equal") for kind, start, end, _, _ in codes if end > start]


def _words(text: str) -> list[str]:
    """Words and the spaces between them."""
    return re.findall(r"\s+|\S+", text)
