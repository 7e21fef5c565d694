"""A measured value beside its limit and the live release's value: positions of a small chart. Pure arithmetic."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slipway.tasks.contracts.measured.evidence import Line
from slipway.tasks.contracts.measured.gate import Judgement, interval_words
from slipway.tasks.contracts.measured.measurement import LevelSummary
from slipway.tasks.contracts.spec.gate import Expectation

WIDTH, EDGE = 560.0, 10.0
HEADROOM = 1.1
"""How much longer the axis is than its largest value."""
CANDIDATE_Y, LIVE_Y = 30.0, 46.0


@dataclass(frozen=True)
class Dot:
    """A measured value, with the ends of its interval, in pixels."""

    target: str
    kind: str
    x: float
    y: float
    low: float
    high: float
    words: str


@dataclass(frozen=True)
class LimitPlot:
    """A horizontal axis with the allowed side of a limit, the limit as a line, and a dot for each target."""

    limit: float
    limit_words: str
    allowed_from: float
    allowed_width: float
    dots: tuple[Dot, ...]
    low_words: str
    high_words: str

    @property
    def words(self) -> str:
        """The whole chart as a sentence."""
        return "; ".join([*(f"{dot.target} {dot.words}" for dot in self.dots), f"limit {self.limit_words}"])


def limit_plot(judgement: Judgement, summaries: Sequence[LevelSummary]) -> LimitPlot | None:
    """The chart of a judgement; None where nothing was measured."""
    if judgement.observed is None:
        return None
    other = beside(judgement, summaries)
    ends = [end for end in judgement.interval or () if end is not None]
    low, high = _axis([judgement.observed, judgement.limit, *ends, *(value for _, value in other)])

    def x(value: float) -> float:
        return round(EDGE + (WIDTH - 2 * EDGE) * (value - low) / (high - low), 1)

    def dot(target: str, kind: str, value: float, y: float, interval: tuple[float | None, float | None]) -> Dot:
        start, end = interval
        words = f"{_number(value, judgement.unit)} {interval_words(interval)}".rstrip()
        return Dot(
            target, kind, x(value), y, x(low if start is None else start), x(high if end is None else end), words
        )

    observed = judgement.observed
    dots = [dot("candidate", "candidate", observed, CANDIDATE_Y, judgement.interval or (observed, observed))]
    dots += [dot(target, "live", value, LIVE_Y, (value, value)) for target, value in other]
    limit, upper = x(judgement.limit), judgement.expectation.is_upper
    return LimitPlot(
        limit=limit,
        limit_words=f"{'at most' if upper else 'at least'} {_number(judgement.limit, judgement.unit)}",
        allowed_from=EDGE if upper else limit,
        allowed_width=round(limit - EDGE if upper else WIDTH - EDGE - limit, 1),
        dots=tuple(dots),
        low_words=f"{low:.4g}",
        high_words=_number(high, judgement.unit),
    )


def beside(judgement: Judgement, summaries: Iterable[LevelSummary]) -> list[tuple[str, float]]:
    """What a judgement's value stands beside: the divisor of a ratio, which is 1, or the live release's own value."""
    expectation = judgement.expectation
    if not isinstance(expectation, Expectation):
        return []
    if expectation.of:
        return [(expectation.of, 1.0)]
    measured = [
        summary.measured(expectation.metric, expectation.quantile)
        for summary in summaries
        if summary.target == "live" and Line(expectation, summary.level).what == judgement.what
    ]
    return [("live", value) for value in measured if value is not None]


def _axis(values: Sequence[float]) -> tuple[float, float]:
    """Low and high end, between which zero is; shares end at 1."""
    low, high = min(0.0, *values), max(0.0, *values)
    if low == 0 and high <= 1:
        return low, 1.0
    return low, high + (high - low) * (HEADROOM - 1)


def _number(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".rstrip()
