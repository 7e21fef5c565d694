import sys

import pytest

from slipway.tasks.adapters.process import Process
from slipway.tasks.contracts.errors import InputError
from tests.support.processes import is_running
from tests.support.waiting import until

WITH_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def first_line(process):
    return until(lambda: process.tail(1))[0]


def test_a_process_and_its_child_end_with_the_block_whatever_ended_it(tmp_path):
    class Interrupted(BaseException):
        pass

    started = []

    def interrupted():
        with Process([sys.executable, "-c", WITH_A_CHILD], tmp_path / "log") as process:
            started.extend((process, int(first_line(process))))
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupted()

    process, grandchild = started
    assert process.exit_code is not None
    assert not is_running(grandchild)


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace_time(tmp_path):
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )

    with Process([sys.executable, "-c", stubborn], tmp_path / "log", grace_s=0.2) as process:
        first_line(process)

    assert process.exit_code == -9


def test_a_command_that_is_not_there_is_an_input_error(tmp_path):
    with pytest.raises(InputError) as caught:
        Process(["no-such-command"], tmp_path / "log")

    assert caught.value.what == "no-such-command is not on PATH"
