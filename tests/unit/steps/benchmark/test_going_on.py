"""A load test goes on until its comparisons are decided, with a stand-in for the connection to Triton."""

from functools import partial

import numpy as np
import pytest

from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.load_test import Capacity, LoadTest
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import Chunk
from slipway.tasks.contracts.spec.gate import Benchmark
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.steps.benchmark import is_decided
from tests.fakes.clock import ManualClock
from tests.fakes.releases import SPEC, release

TARGETS = {name: ServiceAddress(name, {}) for name in ("candidate", "live")}
ONE = LoadLevel(concurrency=1)
LINE = {"metric": "latency_ms", "quantile": 0.5, "at_most_ratio": 1.25, "of": "live"}
SETTINGS = {"concurrency": [1], "requests": 16, "warmup": 2, "max_requests": 256}


class Connection:
    """A server whose answers take `mean_s` seconds, more or less, on the clock of the test."""

    def __init__(self, clock, mean_s, dice):
        self._clock, self._mean_s, self._dice = clock, mean_s, dice

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def prepare(self, model, timeout_s):
        pass

    def record(self, model, request, timeout_s):
        self._clock.sleep(self._mean_s * float(self._dice.lognormal(0, 0.2)))
        return [Chunk("answer", self._clock.monotonic(), "stop")]


class Counter:
    def count(self, text):
        return len(text.split())


def load_test(candidate_s, *, targets=TARGETS, live_s=1.0, line=LINE, cpu_s=lambda _: 0.0, cpus=1.0, **settings):
    """A load test whose candidate takes so long for an answer, and when its level is decided."""
    clock, dice = ManualClock(), np.random.default_rng(5)
    means = {"candidate": candidate_s, "live": live_s}
    planned = release(
        live="demo-1" if "live" in targets else None,
        gate={**SPEC["gate"], "benchmark": {**SETTINGS, **settings}, "expect": [line]},
    )
    load = LoadTest(
        "demo",
        planned.spec.gate.benchmark,
        [GenerateRequest("question", 32)],
        Counter(),
        clock,
        connect=lambda address: Connection(clock, means[address.host], dice),
        cpu_s=lambda: cpu_s(clock.monotonic()),
        capacity=Capacity(cpus),
    )
    return load, partial(is_decided, planned, ONE)


def measured(candidate_s, *, targets=TARGETS, **settings):
    """The rows of a level, for a candidate whose answers take so long."""
    load, decided = load_test(candidate_s, targets=targets, **settings)
    return load.level(ONE, targets, decided)


def count(rows, target):
    return sum(row.target == target for row in rows)


def test_a_candidate_that_is_clearly_slower_ends_the_level_at_the_first_look():
    rows = measured(10.0)

    assert (count(rows, "candidate"), count(rows, "live")) == (16, 16)


def test_a_candidate_that_is_as_fast_is_measured_until_that_is_sure():
    rows = measured(1.0)

    assert 16 < count(rows, "candidate") == count(rows, "live") < 256


def test_a_candidate_at_the_limit_is_measured_up_to_max_requests():
    assert count(measured(1.25), "candidate") == 256


def test_the_time_budget_ends_a_level_after_its_requests_and_leaves_both_targets_even():
    rows = measured(1.25, budget_s=60.0)

    assert 16 <= count(rows, "candidate") == count(rows, "live") < 64


@pytest.mark.parametrize("changes", [{"max_requests": None}, {"targets": {"candidate": TARGETS["candidate"]}}])
def test_without_a_comparison_to_decide_there_are_only_the_requests_of_the_spec(changes):
    assert count(measured(1.25, **changes), "candidate") == 16


def test_a_line_that_needs_more_samples_gets_them():
    line = {"metric": "latency_ms", "quantile": 0.5, "at_most": 5000, "min_count": 60}

    assert count(measured(1.25, line=line), "candidate") == 64


def test_targets_take_turns():
    rows = measured(1.25, max_requests=None)

    turns = [next(row.target for row in rows if row.batch == batch) for batch in range(max(r.batch for r in rows) + 1)]
    assert turns == ["candidate", "live", "live", "candidate"] * 2


@pytest.mark.parametrize(("cpus", "expected"), [(0.5, 0.6), (1.0, 0.3), (8.0, 0.3)])
def test_the_load_test_knows_for_how_much_of_its_time_it_computed(cpus, expected):
    load, decided = load_test(1.0, cpu_s=lambda now: 0.3 * now, cpus=cpus, max_requests=None)

    assert load.busy(ONE) is None
    load.level(ONE, TARGETS, decided)
    assert load.busy(ONE) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"requests": 64, "max_requests": 32}, "below requests"), ({"budget_s": 60}, "set max_requests")],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Benchmark(**settings)
