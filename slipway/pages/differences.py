"""Compares two short texts word by word. Pure."""

import re
from difflib import SequenceMatcher
from typing import NamedTuple

from slipway.pages.texts import shown

ANSWER_CHARS = 2000
"""The part of an answer that is shown."""
COMPARED = 200
"""How many words, and spaces between them, are compared. The time grows with their cube if words repeat."""


class Piece(NamedTuple):
    """A part of a text, and whether the other text lacks it at this place."""

    text: str
    differs: bool


def pieces(text: str, other: str) -> list[Piece]:
    """The pieces of `text`, in bounds. What follows the first COMPARED words and spaces is one piece."""
    words, others = (_words(shown(each, ANSWER_CHARS)) for each in (text, other))
    codes = SequenceMatcher(None, words[:COMPARED], others[:COMPARED], autojunk=False).get_opcodes()
    compared = [Piece("".join(words[start:end]), kind != "equal") for kind, start, end, _, _ in codes if end > start]
    rest = words[COMPARED:]
    return [*compared, *([Piece("".join(rest), rest != others[COMPARED:])] if rest else [])]


def _words(text: str) -> list[str]:
    """Words and the spaces between them."""
    return re.findall(r"\s+|\S+", text)
