"""Confidence intervals by bootstrap, from scipy."""

from collections.abc import Sequence
from typing import Any

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 20260101  # a report that is made again must say the same


def quantile_ratio(
    candidate: Sequence[float], baseline: Sequence[float], quantile: float
) -> tuple[float, float, float]:
    """Quantile of `candidate` over quantile of `baseline`: the ratio, and its 95 % percentile-bootstrap interval.

    Raises:
        ValueError: either is empty, or the baseline's quantile is 0.
    """
    import numpy as np

    def statistic(a: Any, b: Any, axis: int = -1) -> Any:
        return np.quantile(a, quantile, axis=axis) / np.quantile(b, quantile, axis=axis)

    if not candidate or not baseline or not np.quantile(baseline, quantile):
        raise ValueError("a ratio needs samples on both sides and a baseline that is not 0")
    return _interval((np.asarray(candidate), np.asarray(baseline)), statistic, paired=False)


def rate_ratio(
    candidate: Sequence[tuple[float, float]], baseline: Sequence[tuple[float, float]]
) -> tuple[float, float, float]:
    """Ratio of two closed-loop rates from (weight, seconds) per request, and its 95 % interval.

    Raises:
        ValueError: either is empty, or the baseline's rate is 0.
    """
    import numpy as np

    def statistic(a: Any, b: Any, axis: int = -1) -> Any:
        mine, theirs = np.asarray(candidate)[a], np.asarray(baseline)[b]
        rates = [np.sum(pairs[..., 0], axis=axis) / np.sum(pairs[..., 1], axis=axis) for pairs in (mine, theirs)]
        return rates[0] / rates[1]

    if not candidate or not baseline or not sum(weight for weight, _ in baseline):
        raise ValueError("a ratio needs requests on both sides and a baseline that is not 0")
    return _interval((np.arange(len(candidate)), np.arange(len(baseline))), statistic, paired=False)


def _interval(data: tuple[Any, ...], statistic: Any, *, paired: bool) -> tuple[float, float, float]:
    from scipy import stats

    point = float(statistic(*data))
    if min(len(sample) for sample in data) < 2:  # noqa: PLR2004 - one sample has no spread to resample
        return point, float("-inf"), float("inf")
    found = stats.bootstrap(
        data,
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        paired=paired,
        vectorized=True,
        rng=SEED,
    ).confidence_interval
    return point, float(found.low), float(found.high)
