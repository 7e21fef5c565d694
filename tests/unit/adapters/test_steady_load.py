"""Load in the background: it goes on until it is stopped, whatever becomes of a request."""

import threading

import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.steady_load import SteadyLoad
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import Chunk
from slipway.tasks.contracts.errors import PipelineError, UnavailableError
from tests.support.waiting import PATIENCE_S

LIVE = ServiceAddress("live", {})


class Connection:
    """Answers by what the test says; counts connections."""

    opened, closed = 0, 0

    def __init__(self, answer):
        self._answer = answer

    def __enter__(self):
        type(self).opened += 1
        return self

    def __exit__(self, *_):
        type(self).closed += 1

    def stream(self, model, request, timeout_s):
        assert (model, timeout_s) == ("demo", 60.0)
        self._answer(request.prompt)
        yield Chunk("an answer", SystemClock().monotonic(), "stop")


def load_of(answer, rate=500.0):
    Connection.opened = Connection.closed = 0
    requests = [GenerateRequest(each, 32) for each in "12"]
    load = SteadyLoad("demo", rate, requests, 60.0, SystemClock(), connect=lambda _: Connection(answer))
    load.start(LIVE)
    return load


class After:
    """Set once the given number of requests came."""

    def __init__(self, count):
        self.count, self.came, self.lock = count, threading.Event(), threading.Lock()

    def __call__(self, _):
        with self.lock:
            self.count -= 1
        if self.count <= 0:
            self.came.set()


def test_every_request_has_a_connection_of_its_own_and_a_row():
    answer = After(20)
    load = load_of(answer)
    answer.came.wait()

    rows = load.stop()

    assert len(rows) == Connection.opened == Connection.closed >= 20
    assert [row.prompt for row in rows[:4]] == ["1", "2", "1", "2"]
    assert all(row.ok and row.target == "live" and row.due_s <= row.start_s <= row.last_token_s for row in rows)
    assert [row.due_s for row in rows] == sorted(row.due_s for row in rows)


def test_a_request_that_fails_is_a_row_and_the_load_goes_on():
    count = After(20)

    def answer(prompt):
        count(prompt)
        if prompt == "2":
            raise UnavailableError("no answer")

    load = load_of(answer)
    count.came.wait()

    rows = load.stop()

    assert {(row.prompt, row.ok, row.error) for row in rows} == {("1", True, ""), ("2", False, "no answer")}


def test_requests_are_sent_while_others_wait_and_those_are_waited_for():
    together = threading.Barrier(8)
    came = After(8)

    def answer(prompt):
        came(prompt)
        if together.n_waiting or not came.came.is_set():
            together.wait(PATIENCE_S)

    load = load_of(answer)
    came.came.wait()

    assert all(row.ok for row in load.stop()[:8])


def test_stopping_does_not_wait_for_the_next_request():
    assert load_of(lambda _: None, rate=1e-6).stop() == []


def test_a_load_that_never_started_sent_nothing():
    load = SteadyLoad("demo", 1.0, [], 60.0, SystemClock())

    load.abandon()

    assert load.stop() == []


def test_an_abandoned_load_is_not_waited_for():
    came, held = threading.Event(), threading.Event()

    def answer(_):
        came.set()
        held.wait()

    load = load_of(answer)
    came.wait()

    load.abandon()

    assert Connection.closed == 0
    held.set()


def test_an_error_of_ours_is_not_lost():
    came = threading.Event()

    def answer(_):
        came.set()
        raise ZeroDivisionError("division by zero")

    load = load_of(answer)
    came.wait()

    with pytest.raises(PipelineError, match="ZeroDivisionError"):
        load.stop()
