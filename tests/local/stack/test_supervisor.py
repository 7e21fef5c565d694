"""Services under the supervisor: small programs in place of the stack's."""

import json
import os
import signal
import sys
from dataclasses import replace

import pytest

from local.processes import STACK, having
from local.stack import ENVIRONMENTS, REPOSITORY
from local.supervisor import SERVICE_SETTINGS, Service, Supervisor
from tests.support.waiting import until

# what the supervisor starts outlives the process that started it
pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")

FORKING = (
    "import os, time; os.fork() or os.setpgid(0, 0); print('says', os.environ['SAYS'], flush=True); time.sleep(60)"
)
FAILING = "import sys; sys.exit('the port is taken')"


@pytest.fixture
def folder(tmp_path):
    """Too long for the path of a socket, with characters that mean something in the supervisor's configuration."""
    made = tmp_path / ("a folder; with 50%(here)s # " + "of a long name " * 8)
    made.mkdir()
    return made


@pytest.fixture
def supervisor(folder):
    python = ENVIRONMENTS / "local" / "bin" / "python"
    made = Supervisor(folder, python, REPOSITORY, {"forking": 1, "failing": 1})
    yield made
    made.end()
    assert having(**{STACK: str(folder)}) == set()


def service(name="forking", code=FORKING, says="hello"):
    return Service(name, (sys.executable, "-c", code), {"SAYS": says}, REPOSITORY)


def started(supervisor, **described):
    """Pid of a service that has forked."""
    supervisor.start([service(**described)])
    until(lambda: len(of_service(supervisor)) == 2)
    return supervisor.states()["forking"].pid


def of_service(supervisor, name="forking"):
    return having(SLIPWAY_SERVICE=name, **{STACK: str(supervisor.log(name).parents[1])})


def test_a_killed_service_is_back_and_what_it_forked_is_ended(supervisor):
    pid, before = started(supervisor), of_service(supervisor)

    os.kill(pid, signal.SIGKILL)

    until(lambda: len(of_service(supervisor) - before) == 2)
    assert not before & of_service(supervisor)
    assert supervisor.states()["forking"].pid not in (pid, 0)


def test_services_that_an_older_version_did_not_have_are_started_and_ended(supervisor, folder):
    pid = started(supervisor)
    newer = Supervisor(
        folder, ENVIRONMENTS / "local" / "bin" / "python", REPOSITORY, {"forking": 1, "failing": 1, "new": 1}
    )
    newer.stop(["new"])

    newer.start([service(), service("new")])

    until(lambda: newer.states()["new"].runs and newer.states()["forking"].runs)
    assert newer.states()["forking"].pid != pid
    newer.end()


def test_a_service_is_restarted_only_when_its_description_changes(supervisor):
    pid = started(supervisor)

    supervisor.start([service()])
    assert supervisor.states()["forking"].pid == pid
    supervisor.start([replace(service(), depends_on="another address")])
    until(lambda: supervisor.states()["forking"].runs)

    assert supervisor.states()["forking"].pid != pid


def test_services_of_a_killed_supervisor_go_on_and_are_ended_before_others_start(supervisor, folder):
    pid = started(supervisor)
    os.kill(int((folder / "supervisor" / "supervisord.pid").read_text()), signal.SIGKILL)
    until(lambda: not supervisor.answers())
    assert pid in of_service(supervisor)
    assert supervisor.left_over() == 2

    assert supervisor.end_left_over() == 2

    assert of_service(supervisor) == set()
    assert started(supervisor) != pid


def test_the_end_takes_what_a_killed_supervisor_left(supervisor, folder):
    started(supervisor)
    os.kill(int((folder / "supervisor" / "supervisord.pid").read_text()), signal.SIGKILL)
    until(lambda: not supervisor.answers())

    assert supervisor.end() == 2

    assert of_service(supervisor) == set()


def test_a_service_that_never_starts_is_given_up_with_its_log(supervisor, monkeypatch):
    settings = SERVICE_SETTINGS.replace("startsecs=2", "startsecs=60")  # else one that takes 2 s to end has started
    assert settings != SERVICE_SETTINGS
    monkeypatch.setattr("local.supervisor.SERVICE_SETTINGS", settings)
    supervisor.start([service("failing", FAILING)])

    until(lambda: supervisor.states()["failing"].gave_up)

    assert "the port is taken" in supervisor.tail("failing")


def test_nobody_else_can_reach_the_supervisor_or_read_what_it_knows(supervisor, folder):
    started(supervisor)

    files = list((folder / "supervisor").iterdir()) + list((folder / "logs").iterdir())

    assert {"socket", "forking.json", "forking.log"} <= {file.name for file in files}
    assert {file.name: oct(file.lstat().st_mode & 0o077) for file in files} == {file.name: "0o0" for file in files}
    assert json.loads((folder / "supervisor" / "forking.json").read_text())["environment"]["SAYS"] == "hello"
