"""Texts of strangers within Markdown, which they must not leave: a prompt may hold backticks, HTML and images.

Airflow's pages fetch the images of Markdown from wherever it says (Airflow 3.3.2). Pure.
"""

import re

from slipway.tasks.contracts.redaction import printable

BACKTICKS = re.compile("`+")


def fenced(text: str, language: str) -> str:
    """A code block, whose fence is longer than any run of backticks in it (CommonMark 0.31, section 4.5)."""
    text = printable(text)
    fence = "`" * max(3, 1 + _longest(text))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def code(text: str) -> str:
    """A code span of one line, between runs of backticks that the text does not have (section 6.1)."""
    text = printable(text).replace("\n", " ")
    marks = "`" * (1 + _longest(text))
    return f"{marks} {text} {marks}" if "`" in text else f"{marks}{text}{marks}"


def _longest(text: str) -> int:
    return max(map(len, BACKTICKS.findall(text)), default=0)
