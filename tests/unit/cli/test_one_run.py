"""`slipway logs`, `cancel` and `open`: what a person does with a run that exists."""

import webbrowser

import pytest

from slipway.cli.runs.follow import ORDER
from tests.fakes.servers.airflow_server import Frame, Script, ScriptedRun
from tests.unit.cli.runs import DAG, failed, promoted


@pytest.fixture
def opened(monkeypatch):
    """Addresses that were shown in a browser."""
    addresses = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


def running(step, log):
    return Script([Frame("running", {"plan": "success", step: "running", "gate": None})], {}, {step: [{"event": log}]})


def add(airflow, run_id, script):
    airflow.dags[DAG] = script
    airflow.runs[DAG, run_id] = ScriptedRun(run_id, {}, script)


def test_the_log_of_the_step_that_failed_is_shown_first(airflow, slipway):
    add(airflow, "one", failed("download", "AirflowFailException", "no such file", "Correct it."))

    code, printed = slipway("logs", "demo")

    assert code == 0
    assert "run one, step download: failed, try 1" in printed
    assert "resolving slipway/demo-llama at v9" in printed.out
    assert "AirflowFailException: no such file" in printed.out
    assert "::group::" not in printed


def test_the_log_of_the_step_at_work_is_shown_while_none_failed(airflow, slipway):
    add(airflow, "one", running("quantize", "layer 3 of 9"))

    assert slipway("logs", "demo")[1].out == "layer 3 of 9\n"


def test_the_log_of_a_named_step_of_a_named_run_is_shown(airflow, slipway):
    add(
        airflow,
        "one",
        Script([Frame("success", {"plan": "success", "gate": "success"})], {}, {"plan": [{"event": "x"}]}),
    )
    add(airflow, "two", promoted())

    assert slipway("logs", "demo", "plan", "--run-id", "one")[1].out == "x\n"


def test_a_step_that_does_not_exist_is_answered_with_those_that_do(airflow, slipway):
    add(airflow, "one", running("quantize", ""))

    code, printed = slipway("logs", "demo", "quantise")

    assert code == 65
    assert "expected plan, quantize, gate" in printed


def test_a_model_without_a_run_has_no_log(airflow, slipway):
    airflow.dags[DAG] = promoted()

    code, printed = slipway("logs", "demo")

    assert (code, "demo has no run" in printed) == (65, True)


def test_a_run_that_goes_on_is_cancelled(airflow, slipway):
    add(airflow, "ended", Script([Frame("success")]))
    add(airflow, "at-work", Script([Frame("running")]))
    add(airflow, "waits", Script([Frame("queued")]))

    code, printed = slipway("cancel", "demo")

    assert code == 0
    assert "cancelled: run at-work" in printed
    assert {run_id: run.now.state for (_, run_id), run in airflow.runs.items()} == {
        "ended": "success",
        "at-work": "failed",
        "waits": "queued",
    }


def test_nothing_is_cancelled_where_no_run_goes_on(airflow, slipway):
    add(airflow, "ended", Script([Frame("success", dict.fromkeys(ORDER, "success"))]))

    code, printed = slipway("cancel", "demo")

    assert (code, "no run of demo goes on: found ended is success" in printed) == (65, True)


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ((), "/slipway/models/demo"),
        (("run",), "/dags/release__demo/runs/new"),
        (("--run-id", "old"), "/dags/release__demo/runs/old"),
    ],
)
def test_a_page_is_opened_and_its_address_printed(airflow, slipway, opened, arguments, path):
    add(airflow, "old", promoted())
    add(airflow, "new", promoted())

    assert slipway("open", "demo", *arguments) == (0, f"{airflow.address}{path}\n")
    assert opened == [f"{airflow.address}{path}"]
