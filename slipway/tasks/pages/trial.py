"""What one run found of a candidate: its gate's judgements, its measurements and its answers."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from slipway.tasks.contracts.fit.ledger import Ledger
from slipway.tasks.contracts.measured.canary import CanaryRecord
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.measured.harness import HarnessReport
from slipway.tasks.contracts.measured.measurement import AnswerRow, Flaw, LevelSummary
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.pages import reading
from slipway.tasks.pages.differences import Piece, pieces
from slipway.tasks.pages.limit_plot import LimitPlot, limit_plot
from slipway.tasks.pages.load_charts import Chart, load_charts
from slipway.tasks.pages.planned import planned_uris
from slipway.tasks.pages.reading import Reader, problems_of
from slipway.tasks.pages.texts import failing, headline, judged
from slipway.tasks.pages.timeline import Point, Timeline, point, read_points, timelines

TONES = {Verdict.PASSED: "promoted", Verdict.FAILED: "refused", Verdict.INCONCLUSIVE: "rolled-back"}
"""The event whose colours a verdict has."""
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
    flaws: tuple[Flaw, ...]


@dataclass(frozen=True)
class Trial:
    """A candidate as a run judged it. What was not recorded, or cannot be read, is absent."""

    release_id: str
    run: str
    release: Release | None = None
    report: GateReport | None = None
    answers: tuple[AnswerRow, ...] = ()
    summaries: tuple[LevelSummary, ...] = ()
    harness: HarnessReport | None = None
    quality: tuple[str, ...] = ()
    """What quantize measured of the model itself, as sentences."""
    past: tuple[Point, ...] = ()
    """Earlier candidates, the oldest first."""
    costs: Ledger | None = None
    canary: CanaryRecord | None = None
    problems: tuple[str, ...] = ()

    @property
    def tone(self) -> str:
        """The event that its verdict is coloured like; empty before there is one."""
        return TONES[self.report.verdict] if self.report else ""

    @property
    def headline(self) -> str:
        """What the gate says, in one sentence."""
        return headline(self.report) if self.report else ""

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
                row.prompt,
                (*pieces(row.expected, row.answer),),
                (*pieces(row.answer, row.expected),),
                row.error,
                row.flaws,
            )
            for row in wrong
        ]

    @property
    def wrong_count(self) -> int:
        """How many answers were not as expected."""
        return sum(not row.ok for row in self.answers)

    @cached_property
    def flawed(self) -> list[str]:
        """How many answers have which flaw, such as `2 cut off`."""
        counts = Counter(flaw for row in self.answers for flaw in row.flaws)
        return [f"{count} {flaw}" for flaw, count in counts.items()]

    @cached_property
    def charts(self) -> list[Chart]:
        """What the load test measured, with the limits of the gate."""
        return load_charts(self.summaries, self.report.judgements if self.report else ())

    @cached_property
    def timeline(self) -> list[Timeline]:
        """What earlier candidates measured, and this one."""
        known = any((each.release_id, each.run) == (self.release_id, self.run) for each in self.past)
        own = [] if known else [point((self.release_id, self.run), self.report, self.summaries)]
        return timelines([*self.past, *own])

    def _line(self, judgement: Judgement) -> GateLine:
        return GateLine(judgement, judged(judgement), limit_plot(judgement, self.summaries))


def read_trial(channel: Channel, release_id: str, run: str, layout: Layout, reader: Reader) -> Trial:
    """What a run recorded of a candidate of the channel's model."""
    evidence = layout.evidence(channel.name, release_id, run)
    uris = {
        "release": planned_uris(channel, [(release_id, run)], layout, reader)[release_id, run],
        **{file: f"{evidence}/{file}.json" for file in ("gate", "answers", "summary", "harness", "cost", "canary")},
    }
    parse = {
        "release": reading.RELEASE,
        "gate": reading.GATE,
        "answers": reading.ANSWERS,
        "summary": reading.SUMMARIES,
        "harness": reading.HARNESS,
        "cost": reading.COSTS,
        "canary": reading.CANARY,
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
        documents["harness"].value,
        past=read_points(channel, layout, reader),
        costs=documents["cost"].value,
        canary=documents["canary"].value,
        problems=problems_of(documents),
    )
