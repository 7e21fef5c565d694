"""Confidence intervals by bootstrap, from scipy."""

from collections.abc import Sequence
from typing import Any

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 20260101  # a report that is rendered again must be the same


def quantile_ratio(
    candidate: Sequence[float], baseline: Sequence[float], quantile: float
) -> tuple[float, float, float] | None:
    """Quantile of `candidate` over quantile of `baseline`: the ratio, and its 95 % percentile-bootstrap interval.

    An end is infinite or nan if the samples do not bound it.

    Returns:
        (ratio, low, high); None if there is no ratio: either is empty, or the baseline's quantile is 0.
    """
    import numpy as np

    def statistic(a: Any, b: Any, axis: int = -1) -> Any:
        return np.quantile(a, quantile, axis=axis) / np.quantile(b, quantile, axis=axis)

    if not candidate or not baseline or not np.quantile(baseline, quantile):
        return None
    return _interval((np.asarray(candidate), np.asarray(baseline)), statistic)


def rate_ratio(
    candidate: Sequence[tuple[float, float]], baseline: Sequence[tuple[float, float]]
) -> tuple[float, float, float] | None:
    """Ratio of two closed-loop rates from (weight, seconds) per request, and its 95 % interval.

    An end is infinite or nan if the samples do not bound it.

    Returns:
        (ratio, low, high); None if there is no ratio: either is empty, or the baseline's rate is 0.
    """
    import numpy as np

    def statistic(a: Any, b: Any, axis: int = -1) -> Any:
        mine, theirs = np.asarray(candidate)[a], np.asarray(baseline)[b]
        rates = [np.sum(pairs[..., 0], axis=axis) / np.sum(pairs[..., 1], axis=axis) for pairs in (mine, theirs)]
        return rates[0] / rates[1]

    if not candidate or not baseline or not sum(weight for weight, _ in baseline):
        return None
    return _interval((np.arange(len(candidate)), np.arange(len(baseline))), statistic)


def _interval(data: tuple[Any, ...], statistic: Any) -> tuple[float, float, float]:
    import numpy as np
    from scipy import stats

    point = float(statistic(*data))
    if min(len(sample) for sample in data) < 2:  # noqa: PLR2004 - one sample has no spread to resample
        return point, float("-inf"), float("inf")
    with np.errstate(divide="ignore", invalid="ignore"):  # a resample may hold a baseline of 0
        interval = stats.bootstrap(
            data,
            statistic,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            method="percentile",
            vectorized=True,
            rng=SEED,
        ).confidence_interval
    return point, float(interval.low), float(interval.high)
