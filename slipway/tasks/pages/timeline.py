"""What the releases of a model measured, one after the other: the time line, as positions of small charts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.measured.measurement import LevelSummary
from slipway.tasks.contracts.spec.gate import Expectation
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel, ChannelEvent
from slipway.tasks.pages import reading
from slipway.tasks.pages.reading import Reader

MOST = 20
"""How many releases a time line has."""
WIDTH, HEIGHT, SIDE, TOP, BOTTOM = 340.0, 128.0, 16.0, 24.0, 24.0
ACCURACIES = ("answer_accuracy", "smoke_accuracy")
"""What is shown as accuracy: the first of these that was judged."""


@dataclass(frozen=True)
class Point:
    """A candidate and what its run measured of it. What was not measured is None."""

    release_id: str
    run: str
    kind: str
    """What became of it: promoted, refused or rolled-back; candidate while nothing is decided."""
    at: datetime | None = None
    levels: tuple[tuple[LoadLevel, float, float | None], ...] = ()
    """Output tokens per second and TTFT p95 in ms at each level, the lowest first."""
    accuracy: float | None = None

    def at_level(self, level: LoadLevel) -> tuple[float | None, float | None]:
        """Tokens/s and TTFT p95 in ms at this level."""
        return next(((tokens, ttft) for each, tokens, ttft in self.levels if each == level), (None, None))


class Dot(NamedTuple):
    """A point in a chart, in pixels, and its label."""

    x: float
    y: float
    kind: str
    words: str


@dataclass(frozen=True)
class Timeline:
    """One metric of a model's candidates, the oldest at the left."""

    title: str
    unit: str
    highest: float
    dots: tuple[Dot, ...]

    @property
    def words(self) -> str:
        """The whole chart as a sentence."""
        return f"{self.title}: {'; '.join(dot.words for dot in self.dots)}"

    @property
    def line(self) -> str:
        """The path through what was not refused, as the points of an SVG polyline."""
        return " ".join(f"{dot.x},{dot.y}" for dot in self.dots if dot.kind != "refused")


def point(trial: tuple[str, str], report: GateReport | None, summaries: Iterable[LevelSummary]) -> Point:
    """What a run measured of its candidate; `trial` names both, the release first."""
    own = sorted((each for each in summaries if each.target == "candidate"), key=lambda each: each.level)
    levels = tuple((each.level, each.output_tokens_per_s, each.measured("ttft_ms", 0.95)) for each in own)
    return Point(*trial, "candidate", None, levels, _accuracy(report))


def read_points(channel: Channel, layout: Layout, reader: Reader, most: int = MOST) -> tuple[Point, ...]:
    """The newest candidates of a channel, the oldest first, as their runs measured them."""
    tried = [event for event in channel.history if event.event != "rolled-back"][:most][::-1]
    folders = [layout.evidence(channel.name, event.release_id, event.run) for event in tried]
    wanted = {f"{folder}/gate.json": reading.GATE for folder in folders}
    documents = reader.read(wanted | {f"{folder}/summary.json": reading.SUMMARIES for folder in folders})
    found = [(documents[f"{each}/gate.json"].value, documents[f"{each}/summary.json"].value or ()) for each in folders]
    return tuple(
        replace(point((event.release_id, event.run), *evidence), kind=_kind(event, channel), at=event.at)
        for event, evidence in zip(tried, found, strict=True)
    )


def timelines(points: Sequence[Point]) -> list[Timeline]:
    """A chart for tokens/s, TTFT p95 and accuracy, of those that two candidates or more have."""
    level = next((each.levels[0][0] for each in reversed(points) if each.levels), None)
    rates = [each.at_level(level) if level else (None, None) for each in points]
    at = f" at {level}" if level else ""
    found = [
        _timeline(f"Output{at}", "tokens/s", points, [tokens for tokens, _ in rates]),
        _timeline(f"TTFT p95{at}", "ms", points, [ttft for _, ttft in rates]),
        _timeline("Accuracy", "", points, [each.accuracy for each in points]),
    ]
    return [each for each in found if len(each.dots) > 1]


def _kind(event: ChannelEvent, channel: Channel) -> str:
    """What became of a candidate: one that went live may have been rolled back since."""
    if event.event == "promoted" and channel.state_of(event.release_id) == "rolled-back":
        return "rolled-back"
    return event.event


def _accuracy(report: GateReport | None) -> float | None:
    judged: dict[str, float | None] = {
        each.expectation.metric: each.observed
        for each in (report.judgements if report else ())
        if isinstance(each.expectation, Expectation) and each.expectation.of is None
    }
    return next((judged[metric] for metric in ACCURACIES if judged.get(metric) is not None), None)


def _timeline(title: str, unit: str, points: Sequence[Point], values: Sequence[float | None]) -> Timeline:
    known = [value for value in values if value is not None]
    highest = max([*known, 1.0 if not unit else 0.0]) or 1.0
    step = (WIDTH - 2 * SIDE) / max(1, len(points) - 1)

    def dot(number: int, value: float) -> Dot:
        each = points[number]
        day = f" on {each.at:%Y-%m-%d}" if each.at else ""
        words = f"{each.release_id}, {each.kind.replace('-', ' ')}{day}: {value:.4g} {unit}".rstrip()
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / highest)
        return Dot(round(SIDE + step * number, 1), round(y, 1), each.kind, words)

    dots = tuple(dot(number, value) for number, value in enumerate(values) if value is not None)
    return Timeline(title, unit, highest, dots)
