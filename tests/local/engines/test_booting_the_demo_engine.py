"""The demo engine in real Triton, rendered from the project's own templates."""

import contextlib
import os
import shutil
import signal
import threading

import httpx
import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import PodShape
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.engines.registry import maker_for
from slipway.tasks.serving.pod.boot import REGIONS, SHARED_MEMORY, BootTest, CrashError
from slipway.tasks.serving.rendered.repository import render
from slipway.tasks.steps.assemble import serving_command
from tests.local.engines.demo_model import demo_spec
from tests.support import plain_http
from tests.support.paths import REPOSITORY
from tests.support.ports import free_ports
from tests.support.processes import processes_naming
from tests.support.waiting import PATIENCE_S, until

SHAPE = PodShape(cpu="1", memory="1Gi", scratch="1Gi")
RIGHT = SmokeQuestion(prompt="What is the capital of France?", answer="The capital of France is Paris.")
WRONG = SmokeQuestion(prompt="What is the capital of France?", answer="The capital of France is Rome.")
FIRST = "the first server runs"


@pytest.fixture
def repository(engine_dir, tmp_path):
    folder, asked = tmp_path / "repository", demo_spec()
    engine = folder / asked.name / "1" / "engine"
    shutil.copytree(engine_dir("int8"), engine)
    rendered = tmp_path / "rendered"
    rendered.mkdir()
    values = maker_for("openvino").template_values(engine, asked)
    render(REPOSITORY / "model_repository_templates", "openvino", values, rendered)
    shutil.copytree(rendered, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture
def boot(tmp_path, tritonserver):
    def command(place):
        _, *words = serving_command(demo_spec(), place)
        return [tritonserver, *words]

    return BootTest(SystemClock(), tmp_path, command, ready_timeout_s=PATIENCE_S)


def test_a_right_answer_after_a_crash_passes_and_nothing_is_left_behind(tmp_path, tritonserver, repository):
    before, left = own_regions(), []

    def command(place):
        _, *words = serving_command(demo_spec(), place)
        if not left:
            left.append(FIRST)
            (port,) = free_ports(1)  # where the boot test does not ask, so that the server can be aborted at leisure
            words = [word.replace(str(place.ports["http"]), str(port)) for word in words]
            threading.Thread(target=abort_once_ready, args=(port, left), daemon=True).start()
        else:
            left[:] = [until(lambda: not processes_naming(str(repository))), own_regions() - before]
        return [tritonserver, *words]

    boot = BootTest(SystemClock(), tmp_path, command, ready_timeout_s=PATIENCE_S)
    try:
        answer = boot.ask(repository, "demo", RIGHT)
    except CrashError:  # the second time, because Triton gives up a model's process that finds no CPU for a second
        assert left != [FIRST]
        answer = boot.ask(repository, "demo", RIGHT)

    assert answer.text.strip() == RIGHT.answer
    assert left == [True, set()]
    until(lambda: not processes_naming(str(repository)))  # what is killed needs a CPU to end
    assert own_regions() == before


def own_regions():
    """Names of the shared memory of this process's boot tests: others may run on this machine."""
    return {region.name for region in SHARED_MEMORY.glob(f"{REGIONS}{os.getpid()}-*")}


def abort_once_ready(port, left):
    """Abort the first server once its models, each in a process of its own, are ready at the port."""

    def is_ready():
        with contextlib.suppress(httpx.HTTPError):
            return plain_http.get(f"http://127.0.0.1:{port}/v2/health/ready").status_code == 200

    until(lambda: left != [FIRST] or is_ready())
    for pid in sorted(processes_naming(f"--http-port={port}"))[:1]:  # none, if the first one crashed by itself
        os.kill(pid, signal.SIGABRT)


def test_a_wrong_answer_is_refused_and_leaves_nothing_behind(boot, repository):
    with pytest.raises(InputError) as caught:
        boot.ask(repository, "demo", WRONG)

    assert "The capital of France is Paris" in caught.value.found
    assert "Rome" in caught.value.expected
    until(lambda: not processes_naming(str(repository)))


def test_a_model_that_does_not_load_is_refused_with_the_reason(boot, repository):
    (repository / "demo" / "1" / "engine" / "openvino_model.bin").unlink()

    with pytest.raises(InputError) as caught:
        boot.ask(repository, "demo", RIGHT)

    assert caught.value.expected == "the model to load"
    assert "failed to load 'demo'" in caught.value.found
    until(lambda: not processes_naming(str(repository)))
