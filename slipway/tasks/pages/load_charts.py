"""What a load test measured, as charts by level of load, with limits as lines: positions. Pure arithmetic."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

from slipway.tasks.contracts.measured.evidence import Line
from slipway.tasks.contracts.measured.gate import Judgement
from slipway.tasks.contracts.measured.measurement import LevelSummary, Target
from slipway.tasks.contracts.spec.gate import Expectation
from slipway.tasks.contracts.spec.load_level import LoadLevel

PLOT_WIDTH, PLOT_HEIGHT = 460.0, 190.0
LEFT, TOP, RIGHT, BOTTOM = 58.0, 12.0, 16.0, 40.0
TARGETS: tuple[Target, ...] = get_args(Target)
TICKS = 4  # approximately, because a tick is a round number
SHIFT = {"candidate": -9.0, "live": 9.0}
"""How far beside the middle of its level a target is drawn, in pixels."""


class Mark(NamedTuple):
    """One measured value: its position and the end of its whisker in pixels, and its label."""

    x: float
    y: float
    y_high: float
    label: str


class Limit(NamedTuple):
    """A limit of the gate at one level, in pixels, and its label."""

    left: float
    right: float
    y: float
    label: str


@dataclass(frozen=True)
class Chart:
    """A small chart: one mark for each target and level of load. All positions are in pixels."""

    title: str
    unit: str
    note: str
    axis: str
    ticks: tuple[tuple[float, str], ...]
    levels: tuple[tuple[float, str], ...]
    series: tuple[tuple[Target, tuple[Mark, ...]], ...]
    limits: tuple[Limit, ...]
    width: float = LEFT + PLOT_WIDTH + RIGHT
    height: float = TOP + PLOT_HEIGHT + BOTTOM
    left: float = LEFT
    right: float = LEFT + PLOT_WIDTH
    bottom: float = TOP + PLOT_HEIGHT

    @property
    def words(self) -> str:
        """The whole chart as a sentence."""
        marks = [mark.label for _, series in self.series for mark in series]
        return f"{self.title} by {self.axis}: {'; '.join([*marks, *(limit.label for limit in self.limits)])}"


class _Value(NamedTuple):
    """What is drawn of a summary: a dot, and the end of its whisker."""

    summary: LevelSummary
    value: float
    high: float


class _Bound(NamedTuple):
    """A limit at one level, in the unit of the chart."""

    level: LoadLevel
    value: float
    words: str


def load_charts(summaries: Sequence[LevelSummary], judgements: Sequence[Judgement] = ()) -> list[Chart]:
    """Charts of throughput and time to first token by level of load; none without data."""
    if not summaries:
        return []
    throughput = [_Value(each, each.output_tokens_per_s, each.output_tokens_per_s) for each in summaries]
    waited = [
        _Value(each, median, p95)
        for each in summaries
        if (median := each.measured("ttft_ms", 0.5)) is not None and (p95 := each.measured("ttft_ms", 0.95)) is not None
    ]
    bounds = {metric: [*_bounds(metric, summaries, judgements)] for metric in ("output_tokens_per_s", "ttft_ms")}
    whiskers = "dot: median, whisker: 95th percentile; lower is better"
    return [
        _chart(("Output tokens", "tokens/s", "higher is better"), throughput, bounds["output_tokens_per_s"]),
        _chart(("Time to first token", "ms", whiskers), waited, bounds["ttft_ms"]),
    ]


def axis_of(levels: Sequence[LoadLevel]) -> str:
    """What the levels are numbers of."""
    kinds = {"concurrency": "concurrency", "requests/s": "request_rate"}
    return " or ".join(
        words for words, name in kinds.items() if any(getattr(level, name) is not None for level in levels)
    )


def _chart(texts: tuple[str, str, str], values: Sequence[_Value], bounds: Sequence[_Bound]) -> Chart:
    """A chart with title, unit and note."""
    levels = sorted({each.summary.level for each in values})
    highest = max([*(each.high for each in values), *(each.value for each in bounds)], default=0.0)
    tick = _round_up(highest / TICKS) or 1.0
    top = tick * max(1, math.ceil(highest / tick))
    step = PLOT_WIDTH / (len(levels) or 1)
    middle = {level: LEFT + step * (index + 0.5) for index, level in enumerate(levels)}
    title, unit, note = texts

    def y(value: float) -> float:
        return round(TOP + PLOT_HEIGHT * (1 - value / top), 1)

    def mark(each: _Value) -> Mark:
        target, level = each.summary.target, each.summary.level
        x = round(middle[level] + SHIFT[target], 1)
        return Mark(x, y(each.value), y(each.high), f"{target}, {level}: {each.value:.4g} {unit}")

    def limit(each: _Bound) -> Limit:
        left = middle[each.level] - step / 2
        return Limit(round(left, 1), round(left + step, 1), y(each.value), f"limit, {each.level}: {each.words} {unit}")

    series = [(target, tuple(mark(each) for each in values if each.summary.target == target)) for target in TARGETS]
    return Chart(
        title,
        unit,
        note,
        axis_of(levels),
        tuple((y(tick * number), f"{tick * number:g}") for number in range(round(top / tick) + 1)),
        tuple((round(place, 1), _tick_label(level)) for level, place in middle.items()),
        tuple((target, marks) for target, marks in series if marks),
        tuple(limit(each) for each in bounds if each.level in middle),
    )


def _bounds(metric: str, summaries: Sequence[LevelSummary], judgements: Sequence[Judgement]) -> Iterator[_Bound]:
    """Limits of a metric at each measured level; one that is a ratio to live's value times that value."""
    levels = sorted({each.level for each in summaries})
    live = {each.level: each for each in summaries if each.target == "live"}
    for judgement in judgements:
        line = judgement.expectation
        if not isinstance(line, Expectation) or line.metric != metric:
            continue
        for level in levels:
            if Line(line, level).what != judgement.what:
                continue
            unit = live[level].measured(metric, line.quantile) if line.of and level in live else None
            value = line.limit * unit if unit is not None else None if line.of else line.limit
            if value is not None:
                quantile = f"p{line.quantile * 100:g} " if line.quantile else ""
                yield _Bound(level, value, f"{quantile}{'at most' if line.is_upper else 'at least'} {value:.4g}")


def _tick_label(level: LoadLevel) -> str:
    return f"{level.concurrency}" if level.request_rate is None else f"{level.request_rate:g}/s"


def _round_up(number: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, ... in the decade of `number`."""
    if number <= 0:
        return 0.0
    decade: float = 10 ** math.floor(math.log10(number))
    return next(round_number * decade for round_number in (1, 2, 5, 10) if round_number * decade >= number)
