"""Ctrl-C ends the following, never the run."""

import signal
import subprocess
import sys

import pytest

from tests.fakes.servers.airflow_server import PASSWORD, USER, Frame, Script
from tests.support.paths import REPOSITORY
from tests.support.waiting import PATIENCE_S, until
from tests.unit.cli.runs import DAG


@pytest.fixture
def following(airflow):
    """The command in a process of its own, which follows a run that does not end."""
    airflow.dags[DAG] = Script([Frame("running", {"plan": "running"})])
    login = {"SLIPWAY_AIRFLOW_USER": USER, "SLIPWAY_AIRFLOW_PASSWORD": PASSWORD}
    process = subprocess.Popen(
        [sys.executable, "-m", "slipway", "release", "demo", "--run-id", "ci-7"],
        env={"SLIPWAY_AIRFLOW": airflow.address, "PYTHONPATH": str(REPOSITORY), **login},
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # a shell starts what it runs in the background with the signal ignored, which children inherit
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    until(lambda: airflow.asked and airflow.asked[-1].endswith("taskInstances"), every_s=0.02)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_an_interrupt_stops_following_and_says_that_the_run_goes_on(airflow, following):
    following.send_signal(signal.SIGINT)

    printed, _ = following.communicate(timeout=PATIENCE_S)

    assert following.returncode == 130
    assert f"stopped following; the run continues at {airflow.address}" in printed
    assert "Traceback" not in printed
    assert not any(line.startswith(("DELETE", "PATCH")) for line in airflow.asked)
