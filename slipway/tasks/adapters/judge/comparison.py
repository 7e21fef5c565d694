"""Compares candidate and live release in the rows of a load test, at every look that was taken at them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slipway.tasks.adapters.judge import statistics
from slipway.tasks.contracts.measured.evidence import Evidence, TextLosses, throughput_weights
from slipway.tasks.contracts.measured.gate import LINE_ERROR
from slipway.tasks.contracts.measured.looks import Look, block_count, blocks, in_order, looks
from slipway.tasks.contracts.measured.measurement import RequestRow, values
from slipway.tasks.contracts.spec.gate import PER_REQUEST_METRICS, Benchmark, Expectation
from slipway.tasks.contracts.spec.load_level import LoadLevel


@dataclass(frozen=True)
class Comparison:
    """A ratio to the live release with its interval, at the look that decided it or at the last one."""

    point: float
    low: float
    high: float
    requests: int
    """Rows of each target that the look was at."""

    @property
    def is_bounded(self) -> bool:
        """Whether there is a finite ratio and an interval at all: one block alone has none."""
        return math.isfinite(self.point) and not (math.isinf(self.low) and math.isinf(self.high))

    def passes(self, expectation: Expectation) -> bool:
        """Whether the whole interval is within the limit."""
        return self.high <= expectation.limit if expectation.is_upper else self.low >= expectation.limit

    def fails(self, expectation: Expectation) -> bool:
        """Whether the whole interval is beyond the limit."""
        return self.low > expectation.limit if expectation.is_upper else self.high < expectation.limit

    def decides(self, expectation: Expectation) -> bool:
        """Whether the limit is outside the interval."""
        return self.passes(expectation) or self.fails(expectation)


def compare(expectation: Expectation, level: LoadLevel, evidence: Evidence, settings: Benchmark) -> Comparison | None:
    """The ratio to live at the first look that decides it, otherwise at the last one; None where no ratio exists.

    A line that was decided stays decided: requests that were sent for the sake of other lines do not change it.
    """
    candidate, live = (in_order(evidence.level(target, level)) for target in ("candidate", "live"))
    compared = None
    for look in looks(settings, min(len(candidate), len(live))):
        compared = _at(look, expectation, (candidate, live), evidence)
        if compared is not None and compared.is_bounded and compared.decides(expectation):
            break
    return compared


def of_texts(expectation: Expectation, texts: Sequence[TextLosses]) -> Comparison:
    """Ratio of perplexity to the source's, or divergence from the source, with an interval; of one text or more.

    Source and quantized model read the same texts, so their losses are subtracted text by text.
    """
    if expectation.metric == "kl_divergence":
        divergence = statistics.mean([(text.divergence, text.tokens) for text in texts], error=LINE_ERROR)
        return Comparison(*divergence, requests=len(texts))
    losses = [(text.quantized - text.source, text.tokens) for text in texts]
    point, low, high = statistics.mean(losses, error=LINE_ERROR)
    return Comparison(math.exp(point), math.exp(low), _exp(high), requests=len(texts))


def _exp(number: float) -> float:
    try:
        return math.exp(number)
    except OverflowError:
        return math.inf


def _at(
    look: Look, expectation: Expectation, rows: tuple[Sequence[RequestRow], Sequence[RequestRow]], evidence: Evidence
) -> Comparison | None:
    count = block_count(look.requests)
    if not count:
        return None
    mine, theirs = (blocks(each[: look.requests], count) for each in rows)
    metric = expectation.metric
    if metric in PER_REQUEST_METRICS:
        assert expectation.quantile is not None
        samples, baseline = ([values(block, metric) for block in each] for each in (mine, theirs))
        ratio = statistics.quantile_ratio(samples, baseline, expectation.quantile, error=look.error)
    else:
        weights, divisor = (
            [throughput_weights(metric, block, evidence.goodput) for block in each] for each in (mine, theirs)
        )
        ratio = statistics.rate_ratio(weights, divisor, error=look.error)
    return Comparison(*ratio, requests=look.requests) if ratio else None
