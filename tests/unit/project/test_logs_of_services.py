"""A failed test shows what services logged while it ran, and nothing else."""

import os
import subprocess
import sys

from tests.support.paths import REPOSITORY
from tests.support.service_logs import LogFiles, Told

TESTS = """
from pathlib import Path

import pytest
from tests.support.service_logs import LogFiles, tell


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pods")
    (folder / "log").write_text("it starts\\n")
    tell(LogFiles(folder))
    return folder / "log"


def test_passes(service):
    service.write_text("it starts\\nearlier\\n")


def test_fails(service):
    with service.open("a") as log:
        log.write("it breaks\\n")
    assert False
"""


def test_a_failed_test_shows_what_was_logged_since_it_began(tmp_path):
    (tmp_path / "test_service.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.service_logs", "-p", "no:cacheprovider", tmp_path]

    path = os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    section = done.stdout.partition("Logged meanwhile: pods0/log")[2]
    assert "it breaks" in section
    assert "it starts" not in section
    assert "earlier" not in section


def test_logs_of_a_service_that_is_gone_say_nothing(tmp_path):
    gone = LogFiles(tmp_path / "gone")

    gone.begin()

    assert list(gone.said()) == []


def test_the_end_of_a_long_log_is_shown(tmp_path):
    (tmp_path / "service.log").write_text("first\n" + "x" * 10_000 + "last\n")

    ((name, text),) = LogFiles(tmp_path / "service.log").said()

    assert name == "service.log"
    assert text.endswith("last\n")
    assert len(text) < 5000


def test_a_function_is_told_when_the_test_began():
    airflow = Told("Airflow's errors", lambda began_at: f"since {began_at > 0}")

    airflow.begin()

    assert list(airflow.said()) == [("Airflow's errors", "since True")]
