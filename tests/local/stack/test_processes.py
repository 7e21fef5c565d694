"""A background process that loses its first process."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from local.processes import Background

# what the stack starts outlives the process that started it
pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")

PARENT = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"


@pytest.fixture
def background(tmp_path):
    made = Background(tmp_path, "parent")
    made.start([sys.executable, "-c", PARENT], {}, tmp_path)
    yield made
    made.stop(timeout_s=1)


def group_of(pid):
    """Every process of the group that is no zombie."""
    stats = {
        stat.parent.name: stat.read_text().rpartition(")")[2].split() for stat in Path("/proc").glob("[0-9]*/stat")
    }
    return {int(name) for name, fields in stats.items() if int(fields[2]) == pid and fields[0] != "Z"}


def with_a_child(background):
    pid, deadline = background.pid(), time.monotonic() + 10
    while len(group_of(pid)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return pid


def test_what_it_started_ends_with_it(background):
    pid = with_a_child(background)

    background.stop()

    assert group_of(pid) == set()


def test_what_it_started_ends_also_when_it_was_killed_before(background):
    pid = with_a_child(background)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert background.pid() is None
    assert len(group_of(pid)) == 1

    background.stop()

    assert group_of(pid) == set()


def test_a_pid_that_the_kernel_gave_to_another_process_is_let_live(tmp_path):
    """The record says another start time than the process that bears the pid now."""
    other = Background(tmp_path, "other")
    other.start([sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path)
    record = (tmp_path / "other.json").read_text()
    mistaken = Background(tmp_path, "mistaken")
    (tmp_path / "mistaken.json").write_text(record.replace('"started": ', '"started": 1'))

    mistaken.stop()

    assert other.pid() is not None
    other.stop()
