"""Scores that lm-evaluation-harness measured, and the lines of the gate that judge them. Pure arithmetic.

lm_eval gives a standard error with each score. A score is known within 1.96 of them, the 95 % interval of the normal
distribution; that of a difference of two scores has the root of both variances, as if the documents of both were drawn
independently. Both releases answer the same documents, so the real interval is narrower.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from slipway.tasks.contracts.base import Contract
from slipway.tasks.contracts.spec.harness import Harness, HarnessLimit, HarnessTask
from slipway.tasks.contracts.stored.artifact import Sha256

Z_95 = 1.96


class Score(Contract):
    """One score of a task."""

    value: float
    stderr: float | None = Field(description="its standard error; null where lm_eval gives none")


class HarnessScores(Contract):
    """What one release scored in one task."""

    task: str
    target: Literal["candidate", "live"]
    release_id: str
    run: str = Field(description="the run that measured it: of a live release, possibly an earlier one")
    key: Sha256 = Field(description="digest of everything besides the release that the scores depend on")
    samples: int = Field(ge=0, description="documents that were asked")
    scores: dict[str, Score] = Field(description="by lm_eval's key: metric,filter")
    task_version: str
    task_hash: str = Field(description="digest of lm_eval's digests of every document, prompt and answer")


class HarnessReport(Contract):
    """evidence/<run>/harness.json, and the data of step evaluate's result."""

    lm_eval: str = Field(description="version of the harness")
    image: str
    scores: tuple[HarnessScores, ...]

    def of(self, task: str, target: str) -> HarnessScores | None:
        """The scores of one release in one task; None where there are none."""
        return next((each for each in self.scores if (each.task, each.target) == (task, target)), None)


@dataclass(frozen=True)
class HarnessLine:
    """One limit with the number that it judges and its 95 % interval, or the problem that prevents a decision."""

    limit: HarnessLimit
    observed: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 0
    problem: str | None = None

    @property
    def what(self) -> str:
        """The score, as text."""
        name = f"{self.limit.task} {self.limit.metric} ({self.limit.filter})"
        return f"{name} below live" if self.limit.is_upper else name


def harness_lines(harness: Harness, report: HarnessReport | None, *, live: bool) -> Iterator[HarnessLine]:
    """Yield a line for each limit; those that compare with live only if a release is `live`."""
    for task in harness.tasks:
        for limit in task.limits:
            if live or not limit.is_upper:
                yield _line(task, limit, report)


def unjudged(harness: Harness) -> Iterable[str]:
    """The tasks that are compared with a live release."""
    return (limit.task for task in harness.tasks for limit in task.limits if limit.is_upper)


def _line(task: HarnessTask, limit: HarnessLimit, report: HarnessReport | None) -> HarnessLine:
    candidate = report.of(task.task, "candidate") if report else None
    if report is None or candidate is None:
        return HarnessLine(limit, problem="it was not measured")
    live = report.of(task.task, "live") if limit.is_upper else None
    measured = [scores for scores in (candidate, live) if scores is not None]
    if limit.is_upper and live is None:
        return HarnessLine(limit, problem="it was not measured for the live release")
    if live is not None and live.key != candidate.key:
        return HarnessLine(limit, problem="the live release was measured with other documents or another lm_eval")
    count = min(scores.samples for scores in measured)
    if count < task.min_count:
        return HarnessLine(limit, count=count, problem=f"{count} documents, at least {task.min_count} are needed")
    scores = [each.scores.get(limit.score) for each in measured]
    if None in scores:
        known = ", ".join(sorted(candidate.scores)) or "none"
        return HarnessLine(limit, count=count, problem=f"there is no score {limit.score}; lm_eval gave {known}")
    return _interval(limit, [score for score in scores if score is not None], count)


def _interval(limit: HarnessLimit, scores: list[Score], count: int) -> HarnessLine:
    errors = [score.stderr for score in scores]
    numbers = [score.value for score in scores]
    if None in errors or not all(map(math.isfinite, [*numbers, *(error for error in errors if error is not None)])):
        return HarnessLine(limit, count=count, problem="lm_eval gave no standard error for it")
    observed = numbers[-1] - numbers[0] if limit.is_upper else numbers[0]
    reach = Z_95 * math.hypot(*(error for error in errors if error is not None))
    return HarnessLine(limit, observed, observed - reach, observed + reach, count)
