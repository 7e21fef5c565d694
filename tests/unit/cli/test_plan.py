"""`slipway plan` says what a release would do."""

from tests.fakes.airflow_server import Frame, Script
from tests.unit.cli.runs import DAG, failed, nothing_to_do, planned


def test_each_stage_is_stored_or_missing_with_its_reason(airflow, slipway):
    airflow.dags[DAG] = Script([Frame("running", {"plan": "success", "download": None})], {"plan": planned()})

    code, printed = slipway("plan", "demo", "--revision", "v1", "--run-id", "one")

    lines = {line.split()[1]: line for line in printed.splitlines() if line.startswith(("  =", "  +"))}
    assert code == 0
    assert "stored" in lines["download"]
    assert "missing" in lines["build"]
    assert lines["build"].rstrip().endswith("new")
    assert "runs build, assemble, publish; then rolls out" in printed
    assert airflow.runs[DAG, "one"].conf == {"revision": "v1", "plan_only": True}


def test_what_may_surprise_is_printed_as_a_warning(airflow, slipway):
    plan = planned(warnings=("the KV cache holds 3 of 16 sequences",))
    airflow.dags[DAG] = Script([Frame("running", {"plan": "success", "download": None})], {"plan": plan})

    code, printed = slipway("plan", "demo")

    assert code == 0
    assert "warning: the KV cache holds 3 of 16 sequences" in printed


def test_a_plan_that_finds_nothing_says_so(airflow, slipway):
    airflow.dags[DAG] = nothing_to_do()

    code, printed = slipway("plan", "demo")

    assert code == 0
    assert "nothing to do: demo-555555555555 is live" in printed


def test_an_impossible_request_exits_with_65(airflow, slipway):
    airflow.dags[DAG] = failed("plan", "AirflowFailException", "plan: sm_75 cannot run fp8")

    code, printed = slipway("plan", "demo")

    assert code == 65
    assert "sm_75 cannot run fp8" in printed
