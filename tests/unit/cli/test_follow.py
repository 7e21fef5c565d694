"""What is shown of a running step."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from slipway.cli.airflow.api import Airflow, NoSuchDagError
from slipway.cli.airflow.login import Login
from slipway.cli.runs.follow import Follower, Progress, follow
from slipway.cli.runs.screens import steps_table
from tests.fakes.servers.airflow_server import BEGAN, PASSWORD, USER, Frame, Script
from tests.support.waiting import PATIENCE_S
from tests.unit.cli.runs import DAG, failed


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("42.1 of 100.0 MB, 12 MB/s, 5 s left", 0.421),
        ("model.safetensors: 512 KiB of 2048 KiB", 0.25),
        ("3 of 4 GiB", 0.75),
        ("120.0 of 100.0 MB", 1.0),
    ],
)
def test_a_progress_line_tells_how_far_a_step_is(line, share):
    assert Progress.of(line).share == pytest.approx(share)


@pytest.mark.parametrize("line", ["", "3 of 5 stages to make", "0 of 0 MB", "loaded 12 MB"])
def test_other_lines_are_no_progress(line):
    assert Progress.of(line) is None


@pytest.fixture
def downloading(airflow):
    lines = ["10.0 of 100.0 MB, 10 MB/s, 9 s left", "40.0 of 100.0 MB, 10 MB/s, 6 s left", "verifying"]
    logs = {"download": [{"event": line} for line in lines]}
    airflow.dags[DAG] = Script([Frame("running", {"plan": "success", "download": "running"})], {}, logs)
    with Airflow(airflow.address, Login(USER, PASSWORD)) as api:
        yield api, api.trigger(DAG, {})


def test_a_long_step_shows_its_newest_progress(downloading):
    follower = Follower(*downloading, now=lambda: BEGAN + timedelta(seconds=10))

    download = follower.look().steps[1]

    assert (download.seconds, download.text) == (10.0, "40.0 of 100.0 MB, 10 MB/s, 6 s left")
    assert download.progress.share == pytest.approx(0.4)


def test_the_log_of_a_short_step_is_not_read(airflow, downloading):
    Follower(*downloading, now=lambda: BEGAN + timedelta(seconds=1)).look()

    assert not any(line.endswith("/logs/1") for line in airflow.asked)


def test_a_log_is_read_again_only_after_a_while(airflow, downloading):
    moments = iter([10, 11, 12, 13.5])
    follower = Follower(*downloading, now=lambda: BEGAN + timedelta(seconds=next(moments)))

    for _ in range(4):
        follower.look()

    assert sum(line.endswith("/logs/1") for line in airflow.asked) == 2


class Unseen:
    def show(self, view):
        pass


IDLE = [Frame("queued"), Frame("running", {"plan": "success", "download": None})]


@pytest.mark.parametrize("idle", IDLE, ids=["queued", "between two steps"])
def test_an_idle_run_whose_dag_cannot_be_read_is_not_waited_for(airflow, monkeypatch, idle):
    monkeypatch.setattr("slipway.cli.runs.follow.IDLE_S", 0.3)
    script = airflow.dags[DAG] = Script([idle])
    with Airflow(airflow.address, Login(USER, PASSWORD)) as api:
        run = api.trigger(DAG, {})
        script.unreadable = "InputError: site.yaml: nmae"

        with pytest.raises(NoSuchDagError, match="nmae"):
            follow(api, run, Unseen(), timeout_s=PATIENCE_S)


def test_a_dag_that_cannot_be_read_for_a_moment_is_waited_for(airflow, monkeypatch):
    monkeypatch.setattr("slipway.cli.runs.follow.IDLE_S", 0.2)
    script = airflow.dags[DAG] = Script([*[Frame("queued")] * 20, Frame("success")])

    class Blip:
        """The DAG can be read again once it was looked at."""

        def show(self, view):
            script.unreadable = "" if airflow.count("GET /api/v2/importErrors") else "half a file"

    with Airflow(airflow.address, Login(USER, PASSWORD)) as api:
        view = follow(api, api.trigger(DAG, {}), Blip(), timeout_s=PATIENCE_S, poll_s=0.1)

    assert view.run.state == "success"
    assert airflow.count("GET /api/v2/importErrors") == 1


@pytest.mark.parametrize("state", ["running", "deferred", "awaiting_input"])
def test_a_step_at_work_is_waited_for_although_its_dag_cannot_be_read(airflow, monkeypatch, state):
    monkeypatch.setattr("slipway.cli.runs.follow.IDLE_S", 0.3)
    script = airflow.dags[DAG] = Script([*[Frame("running", {"build": state})] * 10, Frame("success")])
    with Airflow(airflow.address, Login(USER, PASSWORD)) as api:
        run = api.trigger(DAG, {})
        script.unreadable = "InputError: site.yaml: nmae"

        assert follow(api, run, Unseen(), timeout_s=PATIENCE_S, poll_s=0.1).run.state == "success"


def test_a_queued_run_whose_dag_can_be_read_is_waited_for(airflow, monkeypatch):
    monkeypatch.setattr("slipway.cli.runs.follow.IDLE_S", 0.3)
    airflow.dags[DAG] = Script([*[Frame("queued")] * 10, Frame("success")])
    with Airflow(airflow.address, Login(USER, PASSWORD)) as api:
        view = follow(api, api.trigger(DAG, {}), Unseen(), timeout_s=PATIENCE_S, poll_s=0.1)

    assert view.run.state == "success"
    assert airflow.asked.count(f"GET /api/v2/dags/{DAG}") >= 2


def test_a_result_is_read_once(airflow, downloading):
    follower = Follower(*downloading, now=lambda: datetime.now(UTC))

    for _ in range(3):
        follower.look()

    assert sum("/plan/xcomEntries/" in line for line in airflow.asked) == 1


def test_a_terminal_gets_a_bar_for_a_long_step(downloading):
    view = Follower(*downloading, now=lambda: BEGAN + timedelta(seconds=10)).look()
    console = Console(width=120, force_terminal=True, color_system=None, record=True, file=io.StringIO())

    console.print(steps_table(view))

    download = next(line for line in console.export_text().splitlines() if line.startswith("download"))
    assert "━━" in download
    assert "40.0 of 100.0 MB" in download


def test_steps_are_shown_in_the_order_of_the_pipeline(airflow):
    tasks = {"promote": None, "download": None, "approval": None, "plan": "success", "gate": None}
    airflow.dags[DAG] = Script([Frame("running", tasks)])
    with Airflow(airflow.address, Login(USER, PASSWORD)) as api:
        view = Follower(api, api.trigger(DAG, {})).look()

    assert [step.name for step in view.steps] == ["plan", "download", "gate", "approval", "promote"]


def test_a_step_that_is_tried_again_says_why_it_failed(airflow):
    script = failed("plan", "AirflowException", "plan: the Hub did not answer")
    script.frames = [Frame("running", {"plan": "up_for_retry"})]
    airflow.dags[DAG] = script
    with Airflow(airflow.address, Login(USER, PASSWORD)) as api:
        view = Follower(api, api.trigger(DAG, {})).look()

    assert (view.steps[0].state, view.steps[0].text) == ("retrying", "try 1 failed: plan: the Hub did not answer")
