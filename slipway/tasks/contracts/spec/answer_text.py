"""Judges the text of an answer: how similar it is to an expected one, whether it is empty, whether it loops. Pure.

docs/decisions/0036-how-answers-are-matched.md has the measurements behind the numbers here.
"""

import difflib
import unicodedata

BEGIN_OF_THOUGHT, END_OF_THOUGHT = "<think>", "</think>"
"""What Qwen3 and others write before and after their thoughts, and DeepSeek-R1 after them only, for its template begins
them. The tokens are part of the text."""

MIN_SIMILARITY = 0.9
"""Default of a fuzzy question: a typo, a capital or a full stop in a short sentence, but not another word."""
MAX_FUZZY_CHARS = 500
"""The longest answer that may be expected fuzzily. difflib needs up to 0.3 s to compare 500 characters with 1,500."""

MIN_COPIES = 4
MIN_LOOP_CHARS = 32
"""A loop covers this much at least: one character for each token of the shortest default answer."""
MIN_RULE_CHARS = 200
"""The same for a loop of characters that draw lines, of which tables and headings are full."""
RULE = frozenset(" \t\n-=_~*#+|:.·•─━═│┼")
LAST_CHARS = 8192
"""A loop is looked for in so many characters at the end of an answer; its piece is at most a quarter of them long."""
INVISIBLE = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
"""Unicode categories: control and format characters, and all spaces."""


def without_thoughts(text: str) -> str | None:
    """What follows the thoughts of a model, stripped; None if they did not end."""
    _, ended, answer = text.rpartition(END_OF_THOUGHT)
    answer = answer.strip()
    return None if not ended and answer.startswith(BEGIN_OF_THOUGHT) else answer


def is_similar(expected: str, answer: str, least: float) -> bool:
    """Whether the share of characters that two texts have in common, in the same order, is at least `least`.

    The share is that of difflib: twice the characters of matching blocks, divided by the characters of both texts. Both
    are normalized first: Unicode's NFKC, no capitals (case folding), and one space for each run of white space.
    """
    matcher = difflib.SequenceMatcher(None, _normalized(expected), _normalized(answer), autojunk=False)
    # an upper bound from the lengths alone, so that a long answer costs nothing
    return matcher.real_quick_ratio() >= least and matcher.ratio() >= least


def _normalized(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def is_empty(text: str) -> bool:
    """Whether nothing visible follows the thoughts of a model."""
    return all(unicodedata.category(character) in INVISIBLE for character in without_thoughts(text) or "")


def ends_in_a_loop(text: str) -> bool:
    """Whether an answer, thoughts included, ends in one piece of text that is repeated without a break.

    The piece is there MIN_COPIES times or more, the last of which may be incomplete, and the copies have MIN_LOOP_CHARS
    together. This is the test with which vLLM 0.17 can end a generation (RepetitionDetectionParams: a pattern at the
    tail, and how often), over characters, which all models and scripts have in common, instead of tokens.
    """
    tail = text.strip()[-LAST_CHARS:][::-1]
    # Knuth, Morris and Pratt: the first n characters have the period n - border, and no shorter one
    borders = [0] * len(tail)
    border = 0
    for index in range(1, len(tail)):
        while border and tail[index] != tail[border]:
            border = borders[border - 1]
        border += tail[index] == tail[border]
        borders[index] = border
        length, period = index + 1, index + 1 - border
        if length >= MIN_LOOP_CHARS and length >= MIN_COPIES * period:
            is_rule = RULE.issuperset(tail[:period])
            if length >= MIN_RULE_CHARS or not is_rule:
                return True
    return False
