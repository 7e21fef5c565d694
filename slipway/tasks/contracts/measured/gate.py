"""The gate's report: one judgement for each expectation, and the worst of them as the verdict."""

import re
from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field, field_validator

from slipway.tasks.contracts.base import Contract
from slipway.tasks.contracts.spec.gate import Expectation
from slipway.tasks.contracts.spec.harness import HarnessLimit

Interval = tuple[float | None, float | None]
"""Low and high end; None for an end that the samples do not bound."""


AT_ONCE = re.compile(r" at (\d+) at once\b")
LINE_ERROR = 0.05
"""Probability that the interval of a line misses the true value: at any look, half of it on each side."""


class Verdict(StrEnum):
    """Ordered from best to worst."""

    PASSED = "passed"
    INCONCLUSIVE = "inconclusive"
    FAILED = "failed"


class Judgement(Contract):
    """One expectation, judged."""

    expectation: Expectation | HarnessLimit
    what: str = Field(description="the metric with quantile and concurrency, as text")
    verdict: Verdict
    observed: float | None = Field(description="absolute value, or the ratio that was judged; None: no data")
    limit: float
    unit: str
    count: int = Field(
        ge=0, description="samples behind the observation: of a ratio, those at the look that decided it"
    )
    interval: Interval | None = Field(
        default=None,
        description="confidence interval of a ratio or a score, wrong with a probability of 5 % at all looks together; "
        "an end that the samples do not bound is null",
    )
    why: str = Field(description="one line for a person")

    @field_validator("what", mode="before")
    @classmethod
    def _levels_of_older_versions(cls, what: object) -> object:
        """Older versions called a level `2 at once`; what was measured is found by these words."""
        return AT_ONCE.sub(r" at concurrency \1", what) if isinstance(what, str) else what


def interval_words(interval: Interval | None) -> str:
    """Format as `[0.93, 1.04]`, with ∞ for an unbounded end; empty when there is no spread to show."""
    if interval is None or interval[0] == interval[1] is not None:
        return ""
    low, high = interval
    return f"[{'-∞' if low is None else f'{low:.3g}'}, {'∞' if high is None else f'{high:.3g}'}]"


class GateReport(Contract):
    """evidence/<run>/gate.json."""

    release_id: str
    live: str | None
    verdict: Verdict
    judgements: tuple[Judgement, ...]
    not_applicable: tuple[str, ...] = Field(
        default=(), description="expectations that compare with a live release while none is live"
    )

    @property
    def by_interval(self) -> int:
        """How many lines were judged by an interval. The others compare the measured number itself."""
        return sum(each.interval is not None and each.interval[0] != each.interval[1] for each in self.judgements)

    @property
    def false_pass(self) -> float:
        """Probability at most that the gate passes a release that is beyond the limit of a line judged by interval.

        All lines have to pass, so the number of lines does not matter (Berger 1982, intersection-union test).
        """
        return LINE_ERROR / 2 if self.by_interval else 0.0

    @property
    def false_fail(self) -> float:
        """Probability at most that the gate fails a release within the limits of all lines judged by interval.

        One line is enough to fail, so their errors add up (Bonferroni).
        """
        return min(1.0, self.by_interval * LINE_ERROR / 2)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst verdict; inconclusive when there is none, because nothing was proven."""
    order = list(Verdict)
    return max(verdicts, key=order.index, default=Verdict.INCONCLUSIVE)
