"""Compares two short texts word by word. Pure."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import takewhile
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
    """The pieces of the first `limit` characters of `text`.

    What both texts begin and end with is not different. Of what is between, COMPARED words are compared, and those that
    follow are not marked.
    """
    words, others = (_words(shown(each, limit)) for each in (text, other))
    start = _shared(words, others)
    end = _shared(words[start:][::-1], others[start:][::-1])
    middle, between = words[start : len(words) - end], others[start : len(others) - end]
    codes = SequenceMatcher(None, middle[:COMPARED], between[:COMPARED], autojunk=False).get_opcodes()
    parts = [
        (words[:start], False),
        *((middle[begin:stop], kind != "equal") for kind, begin, stop, _, _ in codes),
        (middle[COMPARED:] + words[len(words) - end :], False),
    ]
    return [piece for part, differs in parts for piece in _split("".join(part), differs)]


def _shared(words: Sequence[str], others: Sequence[str]) -> int:
    """How many words two texts begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, others, strict=False)))


def _split(text: str, differs: bool) -> list[Piece]:
    """Pieces that a page shows whole: it cuts a longer string."""
    return [Piece(text[start : start + MESSAGE_CHARS], differs) for start in range(0, len(text), MESSAGE_CHARS)]


def _words(text: str) -> list[str]:
    """Words and the spaces between them."""
    return re.findall(r"\s+|\S+", text)
