"""The page of `slipway compare`: one file without anything from elsewhere. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape

from slipway.cli.ask.batch_files import Prompt, Result
from slipway.tasks.contracts import html_pages
from slipway.tasks.contracts.errors import PipelineError

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #1a1a1a; background: #fff }
table { border-collapse: collapse; width: 100%; table-layout: fixed }
th, td { border: 1px solid #ccc; padding: .5rem; text-align: left; vertical-align: top }
td { white-space: pre-wrap; overflow-wrap: anywhere }
th:first-child { width: 22% }
mark { background: #ffe08a }
.times, .failed { display: block; color: #666; font-size: 12px }
.failed { color: #a00 }
"""


@dataclass(frozen=True)
class Pair:
    """A prompt, and what each side answered to it."""

    prompt: Prompt
    answers: tuple[Result | PipelineError, Result | PipelineError]

    @property
    def texts(self) -> tuple[str, str]:
        """Both answers, or what went wrong."""
        first, second = (answer.answer if isinstance(answer, Result) else str(answer) for answer in self.answers)
        return first, second

    @property
    def answered(self) -> bool:
        """Whether both sides answered."""
        return all(isinstance(answer, Result) for answer in self.answers)

    @property
    def same(self) -> bool:
        """Whether both sides answered, with the same text."""
        first, second = self.texts
        return self.answered and first == second


def page(pairs: Sequence[Pair], names: Sequence[str], summary: Sequence[str]) -> str:
    """The page: every prompt with both answers, in which words that the other one lacks are marked."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in ("prompt", *names))
    rows = "\n".join(_row(pair) for pair in pairs)
    lines = "".join(f"<li>{escape(line)}</li>" for line in summary)
    title = escape(" and ".join(names))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{escape(html_pages.POLICY)}"><title>{title}</title><style>{STYLE}</style>'
        f"</head>\n<body><h1>{title}</h1><ul>{lines}</ul>\n<table><thead><tr>{heads}</tr></thead><tbody>\n{rows}\n"
        "</tbody></table></body></html>\n"
    )


def marked(text: str, other: str) -> str:
    """HTML of `text`, with the words marked that `other` does not have at this place."""
    words, others = _words(text), _words(other)
    parts = []
    for kind, start, end, _, _ in SequenceMatcher(None, words, others, autojunk=False).get_opcodes():
        piece = escape("".join(words[start:end]))
        if piece:
            parts.append(piece if kind == "equal" else f"<mark>{piece}</mark>")
    return "".join(parts)


def _row(pair: Pair) -> str:
    first, second = pair.texts
    texts = (marked(first, second), marked(second, first)) if pair.answered else (escape(first), escape(second))
    cells = (_cell(answer, text) for answer, text in zip(pair.answers, texts, strict=True))
    return f"<tr><td>{escape(pair.prompt.prompt)}</td>{''.join(cells)}</tr>"


def _cell(answer: Result | PipelineError, text: str) -> str:
    if not isinstance(answer, Result):
        return f'<td><span class="failed">{escape(str(answer))}</span></td>'
    first = f"first piece {answer.first_piece_s:.3f} s, " if answer.first_piece_s is not None else ""
    ended = escape(answer.finish_reason or "the server")
    return f'<td>{text}<span class="times">{first}{answer.seconds:.3f} s, ended by {ended}</span></td>'


def _words(text: str) -> list[str]:
    """Words and the spaces between them."""
    return re.findall(r"\s+|\S+", text)
