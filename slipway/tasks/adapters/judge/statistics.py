"""Confidence intervals of ratios of two measured series, by a paired block bootstrap. numpy and scipy only.

Requests that follow each other on one server are alike, so single requests are not independent samples: resampling
them gives intervals that are too short (Kunsch 1989; Politis and Romano 1994). Blocks of consecutive requests are
resampled instead, and block i of the candidate together with block i of the baseline, which were measured at about the
same time. The interval is t times the bootstrap's standard error on a log scale (Efron and Tibshirani 1993, chapters 6
and 12), with one degree of freedom less than there are blocks. `python -m bench.serving.gate_statistics` prints its
error rates (docs/decisions/0030-blocks-and-looks.md).
"""

from collections.abc import Sequence
from typing import Any

RESAMPLES = 400  # Efron and Tibshirani 1993, section 6.4: more than 200 are seldom needed for a standard error
SEED = 20260101  # a report that is rendered again must be the same

Interval = tuple[float, float, float]
"""(ratio, low, high). An end is infinite if the samples do not bound it."""


def quantile_ratio(
    candidate: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]], quantile: float, *, error: float
) -> Interval | None:
    """Quantile of `candidate` over quantile of `baseline`, each given as blocks in the order of measurement.

    Args:
        candidate: as many blocks as `baseline` has; a block may be empty.
        baseline: the divisor.
        quantile: 0 to 1.
        error: probability that the interval misses the ratio, half of it on each side.

    Returns:
        None if there is no ratio: either is empty, or the baseline's quantile is 0.
    """
    import numpy as np

    mine, theirs = _Ordered(candidate), _Ordered(baseline)
    if not mine.size or not theirs.size:
        return None
    whole = np.ones((1, len(candidate)), dtype=np.int64)
    below = float(theirs.quantile(whole, quantile)[0])
    if not below:
        return None
    drawn = _drawn(len(candidate))
    ratios = _divided(mine.quantile(drawn, quantile), theirs.quantile(drawn, quantile))
    return _interval(float(mine.quantile(whole, quantile)[0]) / below, ratios, len(candidate), error)


def rate_ratio(
    candidate: Sequence[Sequence[tuple[float, float]]],
    baseline: Sequence[Sequence[tuple[float, float]]],
    *,
    error: float,
) -> Interval | None:
    """Ratio of two closed-loop rates from (weight, seconds) of each request, each given as blocks.

    Args:
        candidate: as many blocks as `baseline` has; a block may be empty.
        baseline: the divisor.
        error: probability that the interval misses the ratio, half of it on each side.

    Returns:
        None if there is no ratio: either took no time, or the baseline's rate is 0.
    """
    import numpy as np

    sums = [
        np.array([[sum(p[0] for p in block), sum(p[1] for p in block)] for block in s]) for s in (candidate, baseline)
    ]
    if not all(len(each) and each[:, 1].sum() for each in sums) or not sums[1][:, 0].sum():
        return None
    totals = [each.sum(axis=0) for each in sums]
    point = float((totals[0][0] / totals[0][1]) / (totals[1][0] / totals[1][1]))
    drawn = _drawn(len(candidate))
    mine, theirs = (drawn @ each for each in sums)
    return _interval(point, _divided(mine[:, 0] * theirs[:, 1], mine[:, 1] * theirs[:, 0]), len(candidate), error)


def mean(texts: Sequence[tuple[float, float]], *, error: float) -> Interval:
    """Sum of the first over sum of the second numbers, with its interval from resampled pairs on a linear scale.

    Args:
        texts: a sum and the weight behind it, one pair for each independent text; at least one.
        error: probability that the interval misses the mean, half of it on each side.
    """
    import numpy as np
    from scipy.special import stdtrit

    sums = np.array(texts, dtype=np.float64)
    point = float(sums[:, 0].sum() / sums[:, 1].sum())
    count = len(sums)
    if count < 2:  # noqa: PLR2004 - one text has no spread to resample
        return point, float("-inf"), float("inf")
    resampled = _drawn(count) @ sums
    spread = np.sqrt(np.mean((resampled[:, 0] / resampled[:, 1] - point) ** 2) * count / (count - 1))
    reach = float(stdtrit(count - 1, 1 - error / 2) * spread)
    return point, point - reach, point + reach


class _Ordered:
    """The numbers of all blocks in order, and how many of each block are among the first ones."""

    def __init__(self, blocks: Sequence[Sequence[float]]) -> None:
        import numpy as np

        numbers = np.array([number for block in blocks for number in block], dtype=np.float64)
        owners = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
        order = np.argsort(numbers, kind="stable")
        self.size = len(numbers)
        self._numbers = numbers[order]
        self._among_first = np.cumsum(owners[order][:, None] == np.arange(len(blocks)), axis=0)

    def quantile(self, drawn: Any, quantile: float) -> Any:
        """The quantile of each resample, as numpy's default computes it; nan for a resample without numbers.

        Args:
            drawn: how often each block is in each resample [resamples, blocks].
            quantile: 0 to 1.
        """
        import numpy as np

        sizes = drawn @ self._among_first[-1]
        rank = np.maximum(sizes - 1, 0) * quantile
        low, high = (self._at(drawn, edge(rank).astype(np.int64)) for edge in (np.floor, np.ceil))
        values = low + (high - low) * (rank - np.floor(rank))
        return np.where(sizes > 0, values, np.nan)

    def _at(self, drawn: Any, rank: Any) -> Any:
        """The number at a rank of each resample, by bisection."""
        import numpy as np

        first, last = np.zeros(len(drawn), dtype=np.int64), np.full(len(drawn), self.size - 1)
        for _ in range(self.size.bit_length()):
            middle = (first + last) // 2
            beyond = np.einsum("rb,rb->r", drawn, self._among_first[middle]) > rank
            first, last = np.where(beyond, first, np.minimum(middle + 1, last)), np.where(beyond, middle, last)
        return self._numbers[last]


def _drawn(blocks: int) -> Any:
    """How often each block is in each resample."""
    import numpy as np

    return np.random.default_rng(SEED).multinomial(blocks, [1 / blocks] * blocks, size=RESAMPLES)


def _divided(above: Any, below: Any) -> Any:
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):  # a resample may hold a baseline of 0
        return above / below


def _interval(point: float, ratios: Any, blocks: int, error: float) -> Interval:
    """From a spread of its own on each side, because the ratio of two high quantiles is skewed."""
    import numpy as np
    from scipy.special import stdtrit

    if blocks < 2:  # noqa: PLR2004 - one block has no spread to resample
        return point, float("-inf"), float("inf")
    lowest, highest = (np.where(np.isnan(ratios), unknown, ratios) for unknown in (0.0, np.inf))
    if point == 0:  # it has no logarithm: the extremes of what was resampled are further out than any interval
        return point, 0.0, float(highest.max())
    with np.errstate(divide="ignore"):
        below, above = (np.log(each) - np.log(point) for each in (lowest, highest))
    reach = stdtrit(blocks - 1, 1 - error / 2) * np.sqrt(blocks / (blocks - 1))
    low = np.sqrt(2 * np.mean(np.minimum(below, 0) ** 2))
    high = np.sqrt(2 * np.mean(np.maximum(above, 0) ** 2))
    return point, float(point * np.exp(-reach * low)), float(point * np.exp(reach * high))
