"""The boot test against servers that do not serve."""

import sys

import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.serving.pod.boot import BootTest
from tests.fakes.clock import ManualClock
from tests.support.paths import REPOSITORY
from tests.support.processes import is_running
from tests.support.refused import refused
from tests.support.waiting import PATIENCE_S, until

QUESTION = SmokeQuestion(prompt="?", answer="!")


class OnceWritten(ManualClock):
    """No time passes before the server has written the file."""

    def __init__(self, file):
        super().__init__()
        self._file = file

    def sleep(self, seconds):
        until(lambda: self._file.exists() and self._file.read_text())
        super().sleep(seconds)


def booting(tmp_path, script, ready_timeout_s=PATIENCE_S, clock=None):
    server = tmp_path / "tritonserver"
    server.write_text(f"#!/bin/sh\n{script}\n")
    server.chmod(0o755)
    return BootTest(clock or SystemClock(), tmp_path, lambda place: [str(server)], ready_timeout_s=ready_timeout_s)


def test_a_server_that_ends_is_refused_with_its_errors(tmp_path):
    boot = booting(tmp_path, "echo 'E1121 failed to load demo'; echo 'I1121 bye'; exit 3")

    with pytest.raises(InputError) as caught:
        boot.ask(tmp_path, "demo", QUESTION)

    assert caught.value.what == "Triton ended with exit code 3 before demo was ready"
    assert caught.value.found == "last output: E1121 failed to load demo"


def test_a_server_that_does_not_get_ready_is_given_up_and_ended(tmp_path):
    pid = tmp_path / "pid"
    clock = OnceWritten(pid)
    boot = booting(tmp_path, f"echo $$ > {pid}; exec sleep 60", 0.3, clock)

    with refused(UnavailableError, what="demo was not ready after 0 s"):
        boot.ask(tmp_path, "demo", QUESTION)

    assert 0.3 <= clock.monotonic() < 0.5
    assert not is_running(int(pid.read_text()))


# as Triton's Python backend words them (src/stub_launcher.cc, r26.06), and Triton (src/http_server.cc)
GIVEN_UP = "echo \"E1130 failed to load 'demo': Internal: Stub process 'demo_0_0' is not healthy.\"; seq 99; exit 1"
STUCK = "echo \"E1130 failed to load 'demo': Internal: Failed to obtain the health mutex.\"; exit 1"
TAKEN = "echo \"E1130 failed to start HTTP service: Unavailable - Socket '127.0.0.1:40000' already in use\"; exit 1"


@pytest.mark.parametrize(
    ("crash", "code"),
    [("kill -ABRT $$", -6), ("exit 134", 134), (GIVEN_UP, 1), (STUCK, 1), (TAKEN, 1)],
    ids=["Triton", "mpirun", "a model's process was given up", "a model's process is stuck", "its port is taken"],
)
def test_a_server_that_crashes_twice_is_refused(tmp_path, crash, code):
    starts = tmp_path / "starts"
    boot = booting(tmp_path, f"echo start >> {starts}; {crash}")

    with refused(InputError, what=f"Triton ended with exit code {code} before demo was ready"):
        boot.ask(tmp_path, "demo", QUESTION)

    assert starts.read_text().split() == ["start", "start"]


@pytest.mark.parametrize("temper", ["aborting", "abandoned", "bereft"])
def test_a_server_that_crashes_as_it_answers_or_has_lost_its_models_process_is_booted_once_more(tmp_path, temper):
    def command(place):
        ports = [f"--{name}-port={port}" for name, port in place.ports.items()]
        addresses = [f"--{name}-address={place.address}" for name in place.ports]
        crashes_once = f'mkdir {tmp_path}/crashed 2> /dev/null && export TEMPER={temper}; POD_NAME=! exec "$@"'
        stand_in = [sys.executable, str(REPOSITORY / "tests" / "local" / "rollout" / "stand_in.py")]
        return ["sh", "-c", crashes_once, "", *stand_in, *ports, *addresses]

    boot = BootTest(SystemClock(), tmp_path, command, ready_timeout_s=PATIENCE_S)
    answer = boot.ask(tmp_path, "demo", SmokeQuestion(prompt="1", answer="!"))  # it answers in one piece

    assert answer.text == "!"
    assert (tmp_path / "crashed").exists()


@pytest.mark.parametrize("script", ["exit 3", "kill -KILL $$"])
def test_a_server_that_ends_otherwise_is_not_started_again(tmp_path, script):
    starts = tmp_path / "starts"
    boot = booting(tmp_path, f"echo start >> {starts}; {script}")

    with refused(InputError):
        boot.ask(tmp_path, "demo", QUESTION)

    assert starts.read_text().split() == ["start"]


def test_a_machine_without_triton_is_named(tmp_path):
    boot = BootTest(SystemClock(), tmp_path, lambda place: ["no-such-tritonserver"], ready_timeout_s=1)

    with refused(what="no-such-tritonserver is not on PATH"):
        boot.ask(tmp_path, "demo", QUESTION)
