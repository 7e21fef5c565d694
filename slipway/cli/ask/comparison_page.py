"""The page of `slipway compare`: one file without anything from elsewhere. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from slipway.cli.ask.batch_files import Prompt, Result
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.pages.differences import Piece, pieces
from slipway.tasks.pages.templates import render

WHOLE_CHARS = 1 << 20
"""The part of a prompt or an answer that is shown: all that a model says at once."""


@dataclass(frozen=True)
class Cell:
    """One side's answer to a prompt, in pieces, with its times; or the error in place of it."""

    pieces: Sequence[Piece] = ()
    times: str = ""
    error: str = ""


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
    def asked(self) -> Sequence[Piece]:
        """The prompt, as it is shown."""
        return pieces(self.prompt.prompt, self.prompt.prompt, WHOLE_CHARS)

    @property
    def answered(self) -> bool:
        """Whether both sides answered."""
        return all(isinstance(answer, Result) for answer in self.answers)

    @property
    def cells(self) -> tuple["Cell", "Cell"]:
        """Both answers as they are shown: marked where one lacks a word of the other."""
        first, second = self.texts
        others = (second, first) if self.answered else (first, second)
        return _cell(self.answers[0], others[0]), _cell(self.answers[1], others[1])

    @property
    def same(self) -> bool:
        """Whether both sides answered, with the same text."""
        first, second = self.texts
        return self.answered and first == second


def page(pairs: Sequence[Pair], names: Sequence[str], summary: Sequence[str]) -> str:
    """The page: every prompt with both answers, in which words that the other one lacks are marked."""
    return render("compare.html.j2", pairs=pairs, names=names, summary=summary)


def _cell(answer: Result | PipelineError, other: str) -> Cell:
    if not isinstance(answer, Result):
        return Cell(error=str(answer))
    first = f"first piece {answer.first_piece_s:.3f} s, " if answer.first_piece_s is not None else ""
    times = f"{first}{answer.seconds:.3f} s, ended by {answer.finish_reason or 'the server'}"
    return Cell(pieces(answer.answer, other, WHOLE_CHARS), times)
