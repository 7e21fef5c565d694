"""Texts of a spec within Markdown, which they must not leave: a prompt may hold backticks and HTML. Pure."""

import re

BACKTICKS = re.compile("`+")


def fenced(text: str, language: str) -> str:
    """A code block, whose fence is longer than any run of backticks in it (CommonMark 0.31, section 4.5)."""
    fence = "`" * max(3, 1 + _longest(text))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def code(text: str) -> str:
    """A code span of one line, between runs of backticks that the text does not have (section 6.1)."""
    marks = "`" * (1 + _longest(text))
    return f"{marks} {text} {marks}" if "`" in text else f"{marks}{text}{marks}"


def _longest(text: str) -> int:
    return max(map(len, BACKTICKS.findall(text)), default=0)
