import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from demo import timeline as timelines
from demo.observers import Pod
from demo.timeline import Timeline
from slipway.cli.airflow.api import Run, Task
from slipway.cli.runs.follow import RunView
from slipway.tasks.contracts.stored.release import StepResult

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds):
    return BEGAN + timedelta(seconds=seconds)


@pytest.fixture(autouse=True)
def environments(tmp_path, monkeypatch):
    monkeypatch.setattr(timelines, "ENVIRONMENTS", tmp_path / "envs")


@pytest.fixture
def timeline():
    return Timeline(BEGAN.timestamp())


def task(name, began, ended, state="success"):
    return Task(name, state, 1, at(began), at(ended))


def view(*tasks, **worked):
    results = {
        step: StepResult(step=step, run="r", outcome="done", summary="", started_at=at(begin), seconds=end - begin)
        for step, (begin, end) in worked.items()
    }
    return RunView(Run("d", "r", "success", at(0), at(99), {}), (), {each.task_id: each for each in tasks}, results)


def pod(step, requested, started):
    return Pod(step, "r", at(requested).timestamp(), at(started).timestamp())


def test_each_time_of_a_step_comes_from_its_own_record(timeline):
    seen = view(task("plan", 10, 20), task("download", 21, 30), plan=(14, 18), download=(25, 28))

    timeline.add(seen, {"plan": pod("plan", 11, 12.5), "download": pod("download", 22, 23)})

    plan, download = timeline.runs["r"]
    assert plan.seconds() == (10, 1, 1.5, 1.5, 4, 2, 1, 11)
    assert download.seconds() == (21, 1, 1, 2, 3, 2, None, 9)


def test_a_step_without_a_pod_has_no_times_of_one(timeline):
    timeline.add(view(task("plan", 1, 2), task("build", 3, 4), build=(1, 1)), {"plan": pod("plan", 1.2, 1.4)})

    assert timeline.runs["r"][1].seconds() == (3, None, None, None, None, None, None, 1)


def test_steps_that_had_no_process_are_left_out(timeline):
    timeline.add(view(task("plan", 1, 2), task("gate", 2, 2, "skipped"), Task("promote", None, 0, None, None)), {})

    assert [step.step for step in timeline.runs["r"]] == ["plan"]


def test_only_environments_that_this_command_built_are_shown(timeline, tmp_path):
    for name, began, ended in (("tasks", 2, 30), ("airflow", 1, 9), ("dev", -500, -400)):
        folder = tmp_path / "envs" / name
        folder.mkdir(parents=True)
        for file, seconds in (("pyvenv.cfg", began), ("made-from", ended)):
            (folder / file).touch()
            os.utime(folder / file, (at(seconds).timestamp(),) * 2)

    assert timeline.environments() == {"airflow": (1, 9), "tasks": (2, 30)}


def test_the_file_holds_every_run_and_the_table_the_steps_of_the_first(timeline, tmp_path):
    timeline.mark("the stack answers")
    timeline.add(view(task("plan", 1, 2)), {})
    timeline.runs["second"] = timeline.runs["r"]

    document = json.loads(timeline.write(tmp_path).read_text())

    assert [step["step"] for steps in document["runs"].values() for step in steps] == ["plan", "plan"]
    names = list(timeline.table().columns[0].cells)
    assert names == ["the stack answers", "plan", "r: 1 steps", "second: 1 steps"]
