"""How many requests a comparison with live will need, from the spread that an earlier gate measured."""

import math

import pytest

from slipway.tasks.contracts.fit.forecast import needed_requests
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from tests.fakes.releases import SPEC, spec

WHAT = "latency_ms p95 at concurrency 1 / live"


def gate(**limits):
    line = {"metric": "latency_ms", "quantile": 0.95, "of": "live", **limits}
    benchmark = {"concurrency": [1], "requests": 64, "max_requests": 512}
    return spec(gate={**SPEC["gate"], "benchmark": benchmark, "expect": [line]}).gate


def measured(interval, what=WHAT):
    line = Judgement(
        expectation=gate(at_most_ratio=1.1).expect[0],
        what=what,
        verdict=Verdict.INCONCLUSIVE,
        observed=1.0,
        limit=1.1,
        unit="x",
        count=64,
        interval=interval,
        why="",
    )
    return GateReport(release_id="demo-1", live="demo-0", verdict=Verdict.INCONCLUSIVE, judgements=(line,))


def test_an_interval_that_is_twice_as_wide_needs_four_times_as_many():
    once, twice = (
        needed_requests(gate(at_most_ratio=1.1), measured((math.exp(-width), math.exp(width))))[0]
        for width in (0.2, 0.4)
    )

    assert once.requests == math.ceil(64 * (0.2 * 2.8 / 1.96 / math.log(1.1)) ** 2)
    assert twice.requests == pytest.approx(4 * once.requests, rel=0.01)
    assert (once.what, once.limit, once.allowed) == (WHAT, 1.1, 512)


def test_a_wider_limit_needs_fewer():
    tight, wide = (
        needed_requests(gate(at_most_ratio=limit), measured((0.9, 1.1)))[0].requests for limit in (1.05, 1.5)
    )

    assert wide < tight / 10


@pytest.mark.parametrize("limits", [{"at_most_ratio": 1.0}, {"at_most_ratio": 0.9}, {"at_least_ratio": 1.0}])
def test_a_limit_that_leaves_no_room_to_be_as_fast_has_no_number(limits):
    assert needed_requests(gate(**limits), measured((0.9, 1.1))) == ()


@pytest.mark.parametrize("interval", [None, (None, 1.1), (0.9, None), (1.0, 1.0)])
def test_without_a_measured_spread_there_is_no_number(interval):
    assert needed_requests(gate(at_most_ratio=1.1), measured(interval)) == ()


def test_a_line_that_the_earlier_gate_did_not_have_has_no_number():
    assert (
        needed_requests(gate(at_most_ratio=1.1), measured((0.9, 1.1), "latency_ms p95 at concurrency 8 / live")) == ()
    )
