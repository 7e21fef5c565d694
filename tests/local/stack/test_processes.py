"""Processes that are known by their environment."""

import contextlib
import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from local.processes import SERVICE, STACK, end, having
from local.stack import ENVIRONMENTS
from tests.support.waiting import PATIENCE_S, until

FORKING = """
import os, time
if os.fork() == 0:
    os.setpgid(0, 0)
    time.sleep(60)
time.sleep(60)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('ready', flush=True)
time.sleep(60)
"""
RENAMED = "import setproctitle, time; setproctitle.setproctitle('x' * 4000); print('ready', flush=True); time.sleep(60)"


@pytest.fixture
def start(tmp_path):
    """Starts Python code as a process of the stack `tmp_path`; none is left afterwards."""
    started = []

    def run(code, python=sys.executable, **environment):
        process = subprocess.Popen(
            [python, "-c", code], env={STACK: str(tmp_path), **environment}, stdout=subprocess.PIPE
        )
        started.append(process)
        return process

    yield run
    for pid in having(**{STACK: str(tmp_path)}):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def of_stack(tmp_path):
    return lambda: having(**{STACK: str(tmp_path)})


def test_a_worker_that_outlives_its_parent_and_left_its_group_is_ended(start, of_stack):
    parent = start(FORKING)
    until(lambda: len(of_stack()) == 2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: len(of_stack()) == 1)

    assert end(of_stack, timeout_s=5) == 1

    assert of_stack() == set()


def test_a_process_that_ignores_sigterm_is_killed(start, of_stack):
    process = start(STUBBORN)
    process.stdout.readline()

    end(of_stack, timeout_s=0.2)

    assert process.wait() == -signal.SIGKILL


def test_processes_of_another_stack_or_service_are_let_live(start, tmp_path):
    mine = start("import time; time.sleep(60)", **{SERVICE: "hub"})
    others = [
        start("import time; time.sleep(60)", **{SERVICE: "hub-2"}),
        start("import time; time.sleep(60)", **{SERVICE: "hub", STACK: f"{tmp_path}-2"}),
    ]
    of_hub = partial(having, **{STACK: str(tmp_path), SERVICE: "hub"})
    until(lambda: of_hub() == {mine.pid})

    end(of_hub, timeout_s=PATIENCE_S)

    assert mine.wait() == -signal.SIGTERM
    assert [process.poll() for process in others] == [None, None]


def test_a_process_that_wrote_a_title_over_its_memory_is_still_known(start, of_stack):
    """Airflow names its workers; the supervisor sets SPT_NOENV for that."""
    process = start(RENAMED, ENVIRONMENTS / "airflow" / "bin" / "python", SPT_NOENV="1")
    process.stdout.readline()

    assert of_stack() == {process.pid}
