"""Turns measured rows into the numbers that expectations judge. Pure arithmetic.

Missing, thin and non-finite data is reported here, before any expectation sees it: Great Expectations 1.24 accepts an
empty table (docs/decisions/0004-the-gate-judges-emptiness-itself.md).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from slipway.tasks.contracts.measured.harness import HarnessReport
from slipway.tasks.contracts.measured.measurement import (
    MAX_CLIENT_BUSY,
    MAX_CLIENT_CHUNKS,
    MAX_CLIENT_LATE,
    AnswerRow,
    Flaw,
    RequestRow,
    Target,
    lateness,
    summarize,
    values,
)
from slipway.tasks.contracts.spec.gate import PER_LEVEL_METRICS, PER_REQUEST_METRICS, UNIT_COST, Expectation, Goodput
from slipway.tasks.contracts.spec.load_level import LoadLevel

NO_DATA = {UNIT_COST: "no cost is known: no tokens, or no price in the site's prices"}
UNITS = {
    "answer_accuracy": "",
    "empty_rate": "",
    "repetition_rate": "",
    "truncated_rate": "",
    "smoke_accuracy": "",
    "error_rate": "",
    "ttft_ms": "ms",
    "itl_ms": "ms",
    "latency_ms": "ms",
    "output_tokens_per_s": "tokens/s",
    "requests_per_s": "requests/s",
    "goodput_per_s": "requests/s",
    UNIT_COST: "",
    "perplexity": "",
    "kl_divergence": "nats",
}


FLAWS: Mapping[str, Flaw] = {"empty_rate": "empty", "repetition_rate": "loops", "truncated_rate": "cut off"}
"""What each rate of flawed answers counts."""


class TextLosses(NamedTuple):
    """A row of `perplexity_texts` in the metrics of quantize: sums over the tokens of a text, in nats."""

    tokens: float
    source: float
    quantized: float
    divergence: float


@dataclass(frozen=True)
class Evidence:
    """Everything that a run measured for a candidate; None for a missing measurement."""

    requests: Sequence[RequestRow]
    answers: Sequence[AnswerRow]
    goodput: Goodput
    perplexity: float | None = None
    source_perplexity: float | None = None
    texts: Sequence["TextLosses"] = ()
    """The texts behind the perplexities; empty where only those are known, as of artifacts of older versions."""
    harness: HarnessReport | None = None
    client_busy: Mapping[LoadLevel, float] = field(default_factory=dict)
    """Share of its time in which the load generator computed, by level, where that is known."""
    client_chunks: Mapping[LoadLevel, float] = field(default_factory=dict)
    """Chunks that arrived, as a share of those that the load generator can stamp, by level, where that is known."""
    token_costs: Mapping[LoadLevel, float] = field(default_factory=dict)
    """What a million output tokens of the candidate cost, by level, where the site has prices."""
    currency: str = ""
    """Of token_costs."""

    def level(self, target: Target, level: LoadLevel) -> list[RequestRow]:
        """Rows of one target at one level."""
        return [row for row in self.requests if row.target == target and row.level == level]


@dataclass(frozen=True)
class Line:
    """One expectation at one level: the numbers that decide it, or the problem that prevents a decision."""

    expectation: Expectation
    level: LoadLevel | None
    samples: tuple[float, ...] = ()
    """One value for each request for a per-request metric, otherwise the one measured value."""
    baseline: tuple[float, ...] = ()
    """The same numbers for the divisor of a ratio."""
    count: int = 0
    problem: str | None = None

    client_busy: float | None = None
    """Share of its time in which the load generator computed, where that is known."""
    client_chunks: float | None = None
    """Chunks that arrived, as a share of those that the load generator can stamp, where that is known."""
    client_late: float | None = None
    """Share of the time to first token before requests were sent, at a request rate."""

    currency: str = ""
    """Of a cost."""

    @property
    def clients_limit(self) -> str:
        """Why the load generator may have been the limit, and not the server; empty if it was not."""
        if self.client_busy is not None and self.client_busy > MAX_CLIENT_BUSY:
            return f"the load generator computed for {self.client_busy:.0%} of the time, so it was the limit"
        times = self.expectation.metric in PER_REQUEST_METRICS
        if times and self.client_chunks is not None and self.client_chunks > MAX_CLIENT_CHUNKS:
            share = f"{self.client_chunks:.0%} of the chunks that the load generator can stamp as they arrive"
            return f"{share} came, so the times may be its own"
        if self.client_late is not None and self.client_late > MAX_CLIENT_LATE:
            late = (
                f"{self.client_late:.0%} of the time to first token passed before the load generator sent the request"
            )
            return f"{late}, so it was the limit"
        return ""

    @property
    def what(self) -> str:
        """The metric with its quantile and level, as text."""
        expectation = self.expectation
        quantile = f" p{expectation.quantile * 100:g}" if expectation.quantile is not None else ""
        level = f" at {self.level}" if self.level is not None else ""
        of = f" / {expectation.of}" if expectation.of else ""
        return f"{expectation.metric}{quantile}{level}{of}"

    @property
    def unit(self) -> str:
        """Unit of the observation; a ratio has none."""
        return "x" if self.expectation.of else UNITS[self.expectation.metric] or self.currency


def lines(expectations: Sequence[Expectation], levels: Sequence[LoadLevel], evidence: Evidence) -> Iterator[Line]:
    """Yield every expectation at every level that it applies to."""
    for expectation in expectations:
        if expectation.metric not in PER_LEVEL_METRICS:
            yield _whole(expectation, evidence)
            continue
        for level in levels if expectation.level is None else (expectation.level,):
            yield _at_level(expectation, level, evidence)


def _whole(expectation: Expectation, evidence: Evidence) -> Line:
    measured: float | None
    if expectation.metric == "perplexity":
        measured, count = evidence.perplexity, max(1, len(evidence.texts))
    elif expectation.metric == "kl_divergence":
        tokens, count = sum(text.tokens for text in evidence.texts), len(evidence.texts)
        measured = sum(text.divergence for text in evidence.texts) / tokens if tokens else None
    else:
        outcomes = _outcomes(expectation.metric, evidence.answers)
        measured, count = (sum(outcomes) / len(outcomes) if outcomes else None), len(outcomes)
    samples = () if measured is None else (measured,)
    source = evidence.source_perplexity
    baseline = (source,) if expectation.of == "source" and source is not None else ()
    return _checked(Line(expectation, None, samples, baseline, count if samples else 0))


def _outcomes(metric: str, answers: Sequence[AnswerRow]) -> list[bool]:
    """What a rate or an accuracy counts, one for each answer that it can be said of."""
    rows = [row for row in answers if row.suite == ("smoke" if metric == "smoke_accuracy" else "quality")]
    if metric not in FLAWS:
        return [row.ok for row in rows]
    answered = [row for row in rows if not row.error and (row.finish_reason or metric != "truncated_rate")]
    return [FLAWS[metric] in row.flaws for row in answered]


def _at_level(expectation: Expectation, level: LoadLevel, evidence: Evidence) -> Line:
    candidate = evidence.level("candidate", level)
    samples: tuple[float, ...]
    currency = ""
    if expectation.metric == UNIT_COST:
        cost = evidence.token_costs.get(level)
        samples, currency = () if cost is None else (cost,), evidence.currency
    else:
        samples = _samples(expectation, candidate, evidence.goodput)
    count = len(samples) if expectation.metric in PER_REQUEST_METRICS else len(candidate)
    baseline: tuple[float, ...] = ()
    late = [lateness(candidate)]
    if expectation.of == "live":
        live = evidence.level("live", level)
        baseline = _samples(expectation, live, evidence.goodput)
        late.append(lateness(live))
        count = min(count, len(baseline) if expectation.metric in PER_REQUEST_METRICS else len(live))
    client_late = max((share for share in late if share is not None), default=None)
    line = Line(expectation, level, samples, baseline, count, client_late=client_late, currency=currency)
    return _checked(
        replace(line, client_busy=evidence.client_busy.get(level), client_chunks=evidence.client_chunks.get(level))
    )


def _samples(expectation: Expectation, rows: Sequence[RequestRow], goodput: Goodput) -> tuple[float, ...]:
    if expectation.metric in PER_REQUEST_METRICS:
        return tuple(values(rows, expectation.metric))
    return (float(getattr(summarize(rows, goodput), expectation.metric)),) if rows else ()


def _checked(line: Line) -> Line:
    problem = None
    if not line.samples:
        problem = NO_DATA.get(line.expectation.metric, "no data")
    elif not all(map(math.isfinite, (*line.samples, *line.baseline))):
        problem = "the data has a number that is not finite"
    elif line.count < line.expectation.min_count:
        problem = f"{line.count} samples, at least {line.expectation.min_count} are needed"
    elif line.expectation.of and not any(line.baseline):
        problem = f"there is no measurement of {line.expectation.of} to compare with"
    return replace(line, problem=problem)


def throughput_weights(metric: str, rows: Sequence[RequestRow], goodput: Goodput) -> list[tuple[float, float]]:
    """Pair each request's contribution to a rate with the seconds of load that it stands for.

    A rate is proportional to sum of the first / sum of the second, so that requests, which are what was sampled, can be
    resampled for a confidence interval of the rate. In a closed loop a request stands for the seconds that it occupied
    its client, in an open one for the mean time to the next request.
    """

    def weight(row: RequestRow) -> float:
        if metric == "output_tokens_per_s":
            return float(row.output_tokens)
        return float(row.meets(goodput) if metric == "goodput_per_s" else row.ok)

    def seconds(row: RequestRow) -> float | None:
        if row.request_rate is not None:
            return 1 / row.request_rate
        return None if row.last_token_s is None else row.last_token_s - row.start_s

    return [(weight(row) if row.ok else 0.0, each) for row in rows if (each := seconds(row)) is not None]
