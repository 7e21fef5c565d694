"""The clients of a load test in several processes, against a stand-in that streams at a known pace."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.load_clients import Load, LoadClients, Turn, arrivals, numbers_of
from slipway.tasks.adapters.load.load_processes import LoadProcesses
from slipway.tasks.adapters.load.load_test import Capacity, LoadTest
from slipway.tasks.adapters.load.paced_server import LOOPBACK, MODEL, PacedServer
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.spec.gate import Benchmark
from slipway.tasks.contracts.spec.load_level import LoadLevel
from tests.local.core.words import Words
from tests.support.paths import REPOSITORY
from tests.support.processes import is_running
from tests.support.waiting import PATIENCE_S, until

FOUR = LoadLevel(concurrency=4)
PROMPTS = [GenerateRequest(prompt, 5) for prompt in "abc"]


@pytest.fixture
def server():
    with PacedServer(first_s=0.05, gap_s=0.01, clients=8) as running:
        yield running


def address_of(server):
    return ServiceAddress(LOOPBACK, {"http": 9, "grpc": server.port})


def measured(server, level, *, chunks_per_s, requests=12):
    """The rows of a level, in how many processes its clients were, and when it began and ended."""
    rates = () if level.request_rate is None else (level.request_rate,)
    clients = () if level.concurrency is None else (level.concurrency,)
    settings = Benchmark(concurrency=clients, request_rate=rates, requests=requests, warmup=2)
    began_s = time.monotonic()
    capacity = Capacity(2.0, chunks_per_s)
    with LoadTest(MODEL, settings, PROMPTS, Words(), SystemClock(), capacity=capacity) as load:
        rows = load.level(level, {"candidate": address_of(server)}, lambda _: True)
        return rows, load.processes(level), load.busy(level), time.monotonic() - began_s


@pytest.mark.parametrize(("chunks_per_s", "processes"), [(1e9, 1), (1.0, 2)])
def test_clients_are_in_as_many_processes_as_their_chunks_need(server, chunks_per_s, processes):
    rows, used, busy, took_s = measured(server, FOUR, chunks_per_s=chunks_per_s)

    assert used == processes
    assert 0 < busy < 1
    assert [(row.ok, row.error) for row in rows] == [(True, "")] * 12
    assert Counter(row.prompt for row in rows) == {"a": 4, "b": 4, "c": 4}
    assert {(row.chunks, row.output_tokens) for row in rows} == {(5, 5)}
    assert all(0 < row.start_s < row.first_token_s < row.last_token_s < took_s for row in rows)
    until(lambda: not multiprocessing.active_children())


def test_processes_share_the_arrivals_of_an_open_loop(server):
    rows, used, _, _ = measured(server, LoadLevel(request_rate=50.0), chunks_per_s=100.0)

    due = sorted((row.due_s, row.prompt) for row in rows)
    assert used == 2
    assert [prompt for _, prompt in due] == [PROMPTS[number % 3].prompt for number in range(12)]
    assert [at - due[0][0] for at, _ in due] == pytest.approx(
        [at - arrivals(50.0, 12, 0)[0] for at in arrivals(50.0, 12, 0)]
    )


class Describing(PacedServer):
    """Takes a while to give its model's configuration, which a client reads when it has connected."""

    def config(self):
        time.sleep(0.2)
        self.described_s = time.monotonic()
        return super().config()


def in_one_process(load, turn):
    return LoadClients(load, SystemClock()).play(turn, numbers_of(turn.requests), time.monotonic)


def in_two_processes(load, turn):
    with LoadProcesses(load, 2) as processes:
        return processes.play(turn)[0]


@pytest.mark.parametrize("play", [in_one_process, in_two_processes])
def test_arrivals_of_an_open_loop_begin_when_every_process_is_connected(play):
    load = Load(MODEL, PROMPTS, PATIENCE_S, Words(), began_s=0.0)
    with Describing(first_s=0.05, gap_s=0.01, clients=8) as server:
        rows = play(load, Turn(LoadLevel(request_rate=100.0), 0, "candidate", address_of(server), 12))

    assert all(row.ok for row in rows)
    assert min(row.due_s for row in rows) > server.described_s


def test_a_request_that_fails_is_a_row_in_every_process(server):
    gone = ServiceAddress(LOOPBACK, {"http": 9, "grpc": 9})
    load = Load(MODEL, PROMPTS, 5.0, Words(), time.monotonic())

    with LoadProcesses(load, 2) as processes:
        rows, _ = processes.play(Turn(FOUR, 0, "candidate", gone, 4))

    assert [row.ok for row in rows] == [False] * 4
    assert all("is not available" in row.error for row in rows)


def test_a_process_that_is_killed_fails_the_step_and_takes_the_others_with_it(server):
    load = Load(MODEL, [GenerateRequest("question", 10_000)], 60.0, Words(), time.monotonic())
    with LoadProcesses(load, 2) as processes:
        victim = multiprocessing.active_children()[0]
        threading.Timer(0.5, victim.kill).start()

        with pytest.raises(PipelineError) as caught:
            processes.play(Turn(FOUR, 0, "candidate", address_of(server), 4))

    assert caught.value.found == "killed by SIGKILL"
    assert "a process of the load generator ended" in caught.value.what
    until(lambda: not multiprocessing.active_children())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_no_process_outlives_the_step(number, code):
    command = [sys.executable, "-m", "tests.local.core.loaded"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True) as step:
        children = [int(each) for each in step.stdout.readline().split()]
        assert len(children) == 2
        step.send_signal(number)

        assert step.wait(PATIENCE_S) == code
    until(lambda: not any(map(is_running, children)))
