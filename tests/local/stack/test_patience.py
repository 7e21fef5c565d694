"""Waiting for real processes, for seconds instead of minutes."""

import os
import subprocess
import sys
import time
from math import inf

import pytest

from local import patience
from local.patience import Patience
from tests.support.waiting import until

SPIN = "print('on', flush=True)\nwhile True: pass"
SLEEP = "import time; print('on', flush=True); time.sleep(600)"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(patience, "IDLE_TIMEOUT_S", 2.0)


@pytest.fixture
def start():
    started = []

    def run(code, *before):
        started.append(subprocess.Popen([*before, sys.executable, "-c", code], stdout=subprocess.PIPE))
        assert started[-1].stdout.readline()
        return started[-1].pid

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_process_that_gets_little_of_the_cpus_is_waited_for(start, monkeypatch):
    monkeypatch.setattr(patience, "IDLE_TIMEOUT_S", inf)  # the kernel tells how long one waited once it has a CPU again
    for _ in range(4 * len(os.sched_getaffinity(0))):
        start(SPIN)
    slow = start(SPIN)  # it gets a fifth of a CPU
    waiting, until_s = Patience(lambda: {slow}), time.monotonic() + 3
    while time.monotonic() < until_s:
        assert not waiting.is_over()
        time.sleep(0.1)

    monkeypatch.setattr(patience, "IDLE_TIMEOUT_S", 2.0)
    until(lambda: not waiting.is_over())  # it has seen work since


def test_processes_that_only_sleep_are_given_up(start):
    sleeper = start(SLEEP)

    until(Patience(lambda: {sleeper}).is_over)


def test_no_process_at_all_is_given_up():
    until(Patience(set).is_over)


def test_a_process_that_works_for_ever_is_given_up(start, monkeypatch):
    monkeypatch.setattr(patience, "CPU_TIMEOUT_S", 0.2)
    monkeypatch.setattr(patience, "IDLE_TIMEOUT_S", float("inf"))
    spinning = start(SPIN)

    until(Patience(lambda: {spinning}).is_over)
