"""What one run found of a candidate: its gate's judgements, its measurements and its answers."""

from dataclasses import dataclass
from functools import cached_property

from slipway.pages import reading
from slipway.pages.differences import Piece, pieces
from slipway.pages.limit_plot import LimitPlot, limit_plot
from slipway.pages.reading import Reader, problems_of
from slipway.pages.texts import failing, judged
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.measured.measurement import AnswerRow, LevelSummary
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.release import Release

WRONG_ANSWERS = 20
"""How many are shown."""


@dataclass(frozen=True)
class GateLine:
    """One expectation: its judgement, in words and as a chart."""

    judgement: Judgement
    words: str
    plot: LimitPlot | None


@dataclass(frozen=True)
class WrongAnswer:
    """A question whose answer was not the expected one."""

    prompt: str
    expected: tuple[Piece, ...]
    given: tuple[Piece, ...]
    error: str


@dataclass(frozen=True)
class Trial:
    """A candidate as a run judged it. What was not recorded, or cannot be read, is absent."""

    release_id: str
    run: str
    release: Release | None = None
    report: GateReport | None = None
    answers: tuple[AnswerRow, ...] = ()
    summaries: tuple[LevelSummary, ...] = ()
    problems: tuple[str, ...] = ()

    @cached_property
    def failing(self) -> list[GateLine]:
        """Expectations that did not pass, the worst first."""
        return [self._line(each) for each in failing(self.report)]

    @cached_property
    def passing(self) -> list[GateLine]:
        """Expectations that passed."""
        judgements = self.report.judgements if self.report else ()
        return [self._line(each) for each in judgements if each.verdict is Verdict.PASSED]

    @cached_property
    def wrong(self) -> list[WrongAnswer]:
        """The first WRONG_ANSWERS answers that were not as expected."""
        wrong = [row for row in self.answers if not row.ok][:WRONG_ANSWERS]
        return [
            WrongAnswer(
                row.prompt, (*pieces(row.expected, row.answer),), (*pieces(row.answer, row.expected),), row.error
            )
            for row in wrong
        ]

    @property
    def wrong_count(self) -> int:
        """How many answers were not as expected."""
        return sum(not row.ok for row in self.answers)

    def _line(self, judgement: Judgement) -> GateLine:
        return GateLine(judgement, judged(judgement), limit_plot(judgement, self.summaries))


def read_trial(name: str, release_id: str, run: str, layout: Layout, reader: Reader) -> Trial:
    """What a run recorded of a candidate."""
    evidence = layout.evidence(name, release_id, run)
    uris = {
        "release": layout.release(name, release_id),
        **{file: f"{evidence}/{file}.json" for file in ("gate", "answers", "summary")},
    }
    parse = {
        "release": reading.RELEASE,
        "gate": reading.GATE,
        "answers": reading.ANSWERS,
        "summary": reading.SUMMARIES,
    }
    found = reader.read({uri: parse[what] for what, uri in uris.items()})
    documents = {what: found[uri] for what, uri in uris.items()}
    return Trial(
        release_id,
        run,
        documents["release"].value,
        documents["gate"].value,
        documents["answers"].value or (),
        documents["summary"].value or (),
        problems_of(documents),
    )
