"""Compares two short texts word by word. Pure."""

import re
from difflib import SequenceMatcher
from typing import NamedTuple

from slipway.tasks.contracts.redaction import MESSAGE_CHARS
from slipway.tasks.pages.texts import shown

ANSWER_CHARS = 2000
"""The part of an answer that is shown."""
COMPARED = 200
"""How many words, and spaces between them, are compared. The time grows with their cube if words repeat."""


class Piece(NamedTuple):
    """A part of a text, and whether the other text lacks it at this place."""

    text: str
    differs: bool


def pieces(text: str, other: str, limit: int = ANSWER_CHARS) -> list[Piece]:
    """The pieces of the first `limit` characters of `text`. What follows the first COMPARED words is not compared."""
    words, others = (_words(shown(each, limit)) for each in (text, other))
    codes = SequenceMatcher(None, words[:COMPARED], others[:COMPARED], autojunk=False).get_opcodes()
    compared = [Piece("".join(words[start:end]), kind != "equal") for kind, start, end, _, _ in codes if end > start]
    rest, differs = "".join(words[COMPARED:]), words[COMPARED:] != others[COMPARED:]
    return compared + [
        Piece(rest[start : start + MESSAGE_CHARS], differs) for start in range(0, len(rest), MESSAGE_CHARS)
    ]


def _words(text: str) -> list[str]:
    """Words and the spaces between them."""
    return re.findall(r"\s+|\S+", text)
