"""Waiting for real processes, for seconds instead of minutes."""

import subprocess
import sys
import time

import pytest

from local import patience
from local.patience import Patience

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


def waited(patience, at_most_s=6):
    """Whether patience ran out within a few seconds of looking, as a caller does; it may after two and a look."""
    deadline = time.monotonic() + at_most_s
    while not patience.is_over() and time.monotonic() < deadline:
        time.sleep(0.1)
    return patience.is_over()


def test_a_process_that_gets_little_of_the_cpus_is_waited_for(start):
    for _ in range(4):
        start(SPIN)
    slow = start(SPIN, "nice", "-n", "10")  # at 19 it may get nothing for two seconds, and the kernel counts later

    assert not waited(Patience(lambda: {slow}), at_most_s=4)


def test_processes_that_only_sleep_are_given_up(start):
    sleeper = start(SLEEP)

    assert waited(Patience(lambda: {sleeper}))


def test_no_process_at_all_is_given_up():
    assert waited(Patience(set))


def test_a_process_that_works_for_ever_is_given_up(start, monkeypatch):
    monkeypatch.setattr(patience, "CPU_TIMEOUT_S", 0.2)
    spinning = start(SPIN)

    assert waited(Patience(lambda: {spinning}))
