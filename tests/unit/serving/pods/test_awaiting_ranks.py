"""The preStop hook of a worker ends with the ranks that run beside it, and not before."""

import shutil
import subprocess

import pytest

from slipway.tasks import command
from slipway.tasks.adapters.process import is_running
from slipway.tasks.serving.pod import await_ranks
from tests.fakes.clock import ManualClock
from tests.support.processes import state_of
from tests.support.waiting import until


def launcher_for(clock, seconds):
    """A container in which the launcher runs for so long."""

    def runs(name):
        assert name == await_ranks.LAUNCHER
        return clock.monotonic() < seconds

    return runs


@pytest.mark.parametrize(("runs_s", "stays_s"), [(0, 0), (20, 20), (600, 60)])
def test_a_worker_stays_as_long_as_its_ranks_and_no_longer_than_it_may(runs_s, stays_s):
    clock = ManualClock()

    summary = await_ranks.await_ranks(launcher_for(clock, runs_s), clock, at_most_s=60)

    assert clock.monotonic() == pytest.approx(stays_s, abs=2 * await_ranks.POLL_S)
    assert ("still running" in summary) is (runs_s > stays_s)


def test_a_process_runs_until_it_has_ended_though_nobody_collected_it(tmp_path):
    program = tmp_path / "rank-of-a-test"
    shutil.copy(shutil.which("sleep"), program)
    before = is_running(program.name)
    with subprocess.Popen([program, "60"]) as process:
        during = is_running(program.name)
        process.kill()
        until(lambda: state_of(process.pid) == "Z")
        after = is_running(program.name)

    assert (before, during, after) == (False, True, False)


def test_the_hook_runs_without_a_site_file():
    assert command.main(["await-ranks", "--at-most-s=0"], {}) == 0
