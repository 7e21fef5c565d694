"""Levels of the load test: which ones a spec may name, how long their turns are and how long they may take."""

import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.measured.looks import longest_s, turn_requests
from slipway.tasks.contracts.spec.gate import Benchmark
from slipway.tasks.contracts.spec.load_level import LoadLevel
from tests.fakes.releases import SPEC, release

ERRORS = {"metric": "error_rate", "at_most": 0.01}


def gated(line, **benchmark):
    return release(gate={**SPEC["gate"], "benchmark": benchmark, "expect": [line]}).spec.gate


def test_levels_of_both_kinds_are_measured_and_rates_come_last():
    settings = Benchmark(concurrency=(4, 1), request_rate=(2.5,))

    assert [str(level) for level in settings.levels] == ["concurrency 4", "concurrency 1", "2.5 requests/s"]
    assert [str(level) for level in sorted(settings.levels)] == ["concurrency 1", "concurrency 4", "2.5 requests/s"]


def test_a_line_is_limited_at_one_rate_or_at_every_level():
    gate = gated({**ERRORS, "request_rate": 2.5}, concurrency=[1], request_rate=[2.5])

    assert gate.expect[0].level == LoadLevel(request_rate=2.5)
    assert gated(ERRORS, concurrency=[1], request_rate=[2.5]).expect[0].level is None


@pytest.mark.parametrize(
    ("line", "benchmark", "message"),
    [
        (ERRORS, {"concurrency": []}, "no level of load: give concurrency, request_rate or both"),
        ({**ERRORS, "request_rate": 2}, {"request_rate": [3]}, "limited at 2 requests/s, but the benchmark measures"),
        (
            {**ERRORS, "concurrency": 9},
            {"request_rate": [3]},
            "limited at concurrency 9, but the benchmark measures concurrency 1",
        ),
        ({**ERRORS, "concurrency": 1, "request_rate": 3}, {"request_rate": [3]}, "concurrency or request_rate, or"),
        (
            {"metric": "smoke_accuracy", "at_least": 1, "request_rate": 3},
            {"request_rate": [3]},
            "once per release: remove request_rate",
        ),
        (ERRORS, {"request_rate": [0]}, "greater than or equal to 0.01"),
    ],
)
def test_levels_that_cannot_be_measured_are_refused(line, benchmark, message):
    with pytest.raises((InputError, ValueError), match=message):
        gated(line, **benchmark)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (LoadLevel(concurrency=4), 16),  # an eighth of the requests, and four of each client
        (LoadLevel(concurrency=8), 32),
        (LoadLevel(request_rate=1), 16),
        (LoadLevel(request_rate=10), 50),  # five seconds
        (LoadLevel(request_rate=100), 128),  # all of them
    ],
)
def test_a_turn_is_an_eighth_of_the_requests_but_long_enough(level, expected):
    assert turn_requests(Benchmark(requests=128), level) == expected


def test_requests_at_a_rate_may_take_the_time_of_their_arrivals_and_of_the_last_answers():
    settings = Benchmark(requests=128, request_timeout_s=30)

    assert longest_s(settings, LoadLevel(concurrency=4), 128) == 33 * 30
    assert longest_s(settings, LoadLevel(request_rate=10), 128) == 26.6 + 3 * 30
