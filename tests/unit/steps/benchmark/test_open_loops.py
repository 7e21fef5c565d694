"""Requests at a rate, whatever becomes of those before; with a stand-in for the connection to Triton."""

import itertools
import statistics
import threading

import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.load_clients import arrivals
from slipway.tasks.adapters.load.load_test import Capacity, LoadTest
from slipway.tasks.adapters.load.open_loop import timed
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import Chunk
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.spec.gate import Benchmark
from slipway.tasks.contracts.spec.load_level import LoadLevel

RATE = LoadLevel(request_rate=200.0)
CANDIDATE = {"candidate": ServiceAddress("candidate", {})}
BOTH = {**CANDIDATE, "live": ServiceAddress("live", {})}
MEET_S = 30.0


class Counter:
    def count(self, text):
        return len(text.split())


class Connection:
    """Answers by what the test says; counts the connections that are open."""

    opened, closed = 0, 0

    def __init__(self, answer):
        self._answer = answer

    def __enter__(self):
        type(self).opened += 1
        return self

    def __exit__(self, *_):
        type(self).closed += 1

    def prepare(self, model, timeout_s):
        pass

    def record(self, model, request, timeout_s):
        self._answer(request)
        return [Chunk("an answer", SystemClock().monotonic(), "stop")]


@pytest.fixture
def measured():
    def measure(answer=lambda _: None, targets=CANDIDATE, **settings):
        settings = Benchmark(**{"concurrency": (), "request_rate": (200.0,), "requests": 8, "warmup": 0, **settings})
        load = LoadTest(
            "demo",
            settings,
            [GenerateRequest(each, 32) for each in "123"],
            Counter(),
            SystemClock(),
            capacity=Capacity(cpus=1.0),
            connect=lambda _: Connection(answer),
        )
        return load.level(RATE, targets, lambda _: True)

    Connection.opened = Connection.closed = 0
    yield measure
    assert Connection.opened == Connection.closed


def test_requests_are_sent_while_those_before_wait_for_their_answers(measured):
    together = threading.Barrier(8)

    rows = measured(lambda _: together.wait(MEET_S))

    assert [row.ok for row in rows] == [True] * 8
    assert {(row.concurrency, row.request_rate) for row in rows} == {(None, 200.0)}


def test_all_requests_of_a_turn_share_a_connection(measured):
    measured(requests=8, warmup=0)

    assert Connection.opened == 2  # the warm-up's turn, and the level's


def test_times_count_from_when_a_request_was_due(measured):
    rows = measured()

    assert all(row.due_s <= row.start_s <= row.first_token_s for row in rows)
    assert all(row.ttft_ms == pytest.approx((row.first_token_s - row.due_s) * 1e3) for row in rows)


def test_a_request_that_fails_is_a_row_and_the_others_go_on(measured):
    def answer(request):
        if request.prompt == "2":
            raise UnavailableError("no answer")

    rows = measured(answer)

    assert [row.ok for row in rows] == [True, False, True] * 2 + [True, False]
    assert {row.error for row in rows if not row.ok} == {"no answer"}


def test_both_targets_get_the_same_requests_at_the_same_times(measured):
    rows = measured(targets=BOTH, requests=16, request_rate=(200.0,))

    def gaps(target):
        due = [row.due_s for row in rows if row.target == target]
        return [(row.prompt, later - due[0]) for row, later in zip(rows, due, strict=False)]

    assert [prompt for prompt, _ in gaps("candidate")] == [prompt for prompt, _ in gaps("live")]
    assert [s for _, s in gaps("candidate")] == pytest.approx([s for _, s in gaps("live")], abs=1e-9)


def test_arrivals_are_a_poisson_process_of_the_rate_and_the_same_each_time():
    times = arrivals(5.0, 20_000, 0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]

    assert statistics.mean(gaps) == pytest.approx(1 / 5.0, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / 5.0, rel=0.03)  # of an exponential time: its mean
    assert times == arrivals(5.0, 20_000, 0)
    assert times != arrivals(5.0, 20_000, 1)


def test_thoughts_are_measured_like_the_answer():
    """An answer of few tokens may end within them."""
    chunks = [Chunk("", 11.0, "", "Is it"), Chunk("", 12.0, ""), Chunk("", 13.0, "length", " four?")]
    row = {"target": "candidate", "batch": 0, "prompt": "2 + 2?"}
    found = timed(lambda: chunks, row, SystemClock(), began_s=10.0, due_s=None, count=Counter().count)

    assert (found.ok, found.first_token_s, found.last_token_s, found.chunks) == (True, 1.0, 3.0, 2)
    assert found.output_tokens == 3
