"""The demo engine in real Triton, rendered from the project's own templates."""

import os
import shutil
from pathlib import Path

import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import PodShape
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.engines.registry import maker_for
from slipway.tasks.serving.pod.boot import REGIONS, SHARED_MEMORY, BootTest
from slipway.tasks.serving.rendered.repository import render
from slipway.tasks.steps.assemble import serving_command
from tests.local.engines.demo_model import demo_spec
from tests.support.paths import REPOSITORY
from tests.support.waiting import until

SHAPE = PodShape(cpu="1", memory="1Gi", scratch="1Gi")
RIGHT = SmokeQuestion(prompt="What is the capital of France?", answer="The capital of France is Paris.")
WRONG = SmokeQuestion(prompt="What is the capital of France?", answer="The capital of France is Rome.")


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

    return BootTest(SystemClock(), tmp_path, command, ready_timeout_s=60)


def processes_on(repository):
    """Command lines of running processes that name the repository."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(repository) in command:
            found.append(command)
    return found


def test_a_right_answer_passes_and_leaves_nothing_behind(boot, repository):
    own = f"{REGIONS}{os.getpid()}-*"  # other boot tests may run on this machine
    before = set(SHARED_MEMORY.glob(own))

    answer = boot.ask(repository, "demo", RIGHT)

    assert answer.text.strip() == RIGHT.answer
    until(lambda: not processes_on(repository))  # those that were killed take a moment
    assert set(SHARED_MEMORY.glob(own)) <= before


def test_a_wrong_answer_is_refused_and_leaves_nothing_behind(boot, repository):
    with pytest.raises(InputError) as caught:
        boot.ask(repository, "demo", WRONG)

    assert "The capital of France is Paris" in caught.value.found
    assert "Rome" in caught.value.expected
    until(lambda: not processes_on(repository))  # those that were killed take a moment


def test_a_model_that_does_not_load_is_refused_with_the_reason(boot, repository):
    (repository / "demo" / "1" / "engine" / "openvino_model.bin").unlink()

    with pytest.raises(InputError) as caught:
        boot.ask(repository, "demo", RIGHT)

    assert caught.value.expected == "the model to load"
    assert "failed to load 'demo'" in caught.value.found
    until(lambda: not processes_on(repository))  # those that were killed take a moment
