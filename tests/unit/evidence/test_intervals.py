"""Intervals of ratios: blocks of neighbouring requests are what is resampled."""

import math

import numpy as np
import pytest

from slipway.tasks.adapters.judge.statistics import quantile_ratio, rate_ratio
from slipway.tasks.contracts.measured.gate import LINE_ERROR
from slipway.tasks.contracts.measured.looks import block_count, blocks, looks, planned
from slipway.tasks.contracts.spec.gate import Benchmark

TIMES = [float(number) for number in np.random.default_rng(1).lognormal(4, 0.35, 64)]
OTHERS = [float(number) for number in np.random.default_rng(2).lognormal(4, 0.35, 64)]


def cut(numbers, count=8):
    return blocks(numbers, count)


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95])
def test_the_ratio_is_that_of_numpys_quantiles(quantile):
    point, low, high = quantile_ratio(cut(TIMES), cut(OTHERS), quantile, error=0.05)

    assert point == pytest.approx(np.quantile(TIMES, quantile) / np.quantile(OTHERS, quantile))
    assert low < point < high


def test_blocks_that_are_alike_inside_give_a_wider_interval_than_the_same_numbers_mixed():
    mixed, alike = (quantile_ratio(cut(each), cut(OTHERS), 0.5, error=0.05) for each in (TIMES, sorted(TIMES)))

    assert math.log(alike[2] / alike[1]) > 1.5 * math.log(mixed[2] / mixed[1])


def test_what_slows_both_down_at_the_same_time_is_not_taken_for_a_difference():
    drift = [1 + number / 16 for number in range(64)]
    mine = [time * factor for time, factor in zip(TIMES, drift, strict=True)]
    theirs = [time * factor for time, factor in zip(OTHERS, drift, strict=True)]
    backwards = [time * factor for time, factor in zip(OTHERS, reversed(drift), strict=True)]

    together, apart = (quantile_ratio(cut(mine), cut(each), 0.5, error=0.05) for each in (theirs, backwards))

    assert math.log(together[2] / together[1]) < math.log(apart[2] / apart[1]) / 1.5


def test_a_smaller_error_needs_a_wider_interval():
    wide, narrow = (quantile_ratio(cut(TIMES), cut(OTHERS), 0.5, error=error) for error in (0.01, 0.05))

    assert wide[1] < narrow[1] < narrow[2] < wide[2]


def test_a_rate_is_weights_over_seconds():
    mine, theirs = ([(10.0, time) for time in each] for each in (TIMES, OTHERS))

    point, low, high = rate_ratio(cut(mine), cut(theirs), error=0.05)

    assert point == pytest.approx(sum(OTHERS) / sum(TIMES))
    assert low < point < high


def test_one_block_bounds_nothing():
    assert quantile_ratio([TIMES], [OTHERS], 0.5, error=0.05)[1:] == (-math.inf, math.inf)


@pytest.mark.parametrize(("empty", "full"), [([[], []], [[1.0], [2.0]]), ([[1.0], [2.0]], [[], []])])
def test_there_is_no_ratio_of_nothing(empty, full):
    assert quantile_ratio(empty, full, 0.5, error=0.05) is None


def test_a_block_without_numbers_leaves_its_side_unbounded_only_where_it_may_be_all_there_is():
    point, low, high = quantile_ratio([[1.0], []], [[1.0], [1.0]], 0.5, error=0.05)

    assert (point, low, high) == (1.0, 0.0, math.inf)


def test_blocks_are_consecutive_and_of_almost_the_same_size():
    assert blocks(range(10), 4) == [range(2), range(2, 5), range(5, 7), range(7, 10)]
    assert [block_count(requests) for requests in (0, 1, 16, 64, 10_000)] == [0, 1, 4, 8, 32]


def test_a_benchmark_that_does_not_go_on_is_looked_at_once_with_the_whole_error():
    assert [(look.requests, look.error) for look in looks(Benchmark(requests=64), 60)] == [(60, LINE_ERROR)]


def test_looks_share_one_error_in_proportion_to_their_requests():
    settings = Benchmark(requests=64, max_requests=500)

    taken = list(looks(settings, 500))

    assert [look.requests for look in taken] == planned(settings) == [64, 128, 256, 500]
    assert sum(look.error for look in taken) == pytest.approx(LINE_ERROR)
    assert taken[0].error == pytest.approx(LINE_ERROR * 64 / 500)


def test_a_level_that_the_time_budget_ended_is_looked_at_with_what_it_had():
    taken = list(looks(Benchmark(requests=64, max_requests=512), 200))

    assert [look.requests for look in taken] == [64, 128, 200]
    assert sum(look.error for look in taken) == pytest.approx(LINE_ERROR * 200 / 512)
