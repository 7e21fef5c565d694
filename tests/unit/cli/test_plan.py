"""`slipway plan` says what a release would do."""

import json
from pathlib import Path

import pytest
import yaml

from slipway.cli import step_process
from slipway.cli.json_documents import FleetPlanDocument
from slipway.tasks.contracts.stored.plan import Estimate
from tests.fakes.releases import SPEC, release
from tests.fakes.servers.airflow_server import Frame, Script
from tests.fakes.workspace import SITE
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


def test_the_engine_kind_and_what_may_surprise_are_printed(airflow, slipway):
    plan = planned(warnings=("the KV cache holds 3 of 16 sequences",), engine_kind="vllm, as recommended: why")
    airflow.dags[DAG] = Script([Frame("running", {"plan": "success", "download": None})], {"plan": plan})

    code, printed = slipway("plan", "demo")

    assert code == 0
    assert "warning: the KV cache holds 3 of 16 sequences" in printed
    assert "engine: vllm, as recommended: why" in printed


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


FORECAST = {
    "of": "demo-555555555555",
    "steps": [
        {"step": "build", "seconds": 7200.0, "gpus": 4, "gpu_hours": 8.0},
        {"step": "publish", "seconds": None, "gpus": 0},
        {"step": "benchmark", "seconds": 1800.0, "gpus": 0},
    ],
    "candidate_gpus": 4,
    "candidate_gpu_hours": 2.0,
    "gpu_hours": 10.0,
    "cost": 20.5,
    "currency": "USD",
}


def ends_planned(airflow, **changes):
    airflow.dags[DAG] = Script([Frame("running", {"plan": "success", "download": None})], {"plan": planned(**changes)})


def test_time_gpus_and_cost_are_those_of_an_earlier_release(airflow, slipway):
    ends_planned(airflow, live="demo-555555555555", forecast=FORECAST)

    _, printed = slipway("plan", "demo")

    build = next(line for line in printed.splitlines() if line.startswith("  + build"))
    assert "about 2.0 h, 8.00 GPU-hours  new" in build
    assert "time: about 2.5 h in pods, 10.00 GPU-hours (2.00 of them the candidate's own), 20.50 USD, as" in printed
    assert ", as demo-555555555555 took; publish not included" in printed
    assert "live now: demo-555555555555, to which a rollback returns" in printed


def test_gpus_of_the_live_release_are_said_beside_those_that_a_release_adds(airflow, slipway):
    ends_planned(airflow, live="demo-555555555555", forecast=FORECAST | {"shared_gpus": 4, "candidate_gpu_hours": 0.0})

    words = "10.00 GPU-hours, and the candidate on 4 GPUs that demo-555555555555 gives up, 20.50 USD"
    assert words in slipway("plan", "demo")[1]


def test_requests_that_a_comparison_will_need_are_said_beside_those_allowed(airflow, slipway):
    few = {"what": "latency_ms p95 at concurrency 8 / live", "limit": 1.1, "requests": 2100, "allowed": 64}
    enough = {"what": "requests_per_s at concurrency 8 / live", "limit": 0.5, "requests": 12, "allowed": 64}
    ends_planned(airflow, forecast=FORECAST, needed=[few, enough])

    lines = [line for line in slipway("plan", "demo")[1].splitlines() if line.startswith("requests: ")]

    assert lines[0].endswith(
        "against 1.1 needs about 2,100 where the candidate is as fast, and gate.benchmark allows 64"
    )
    assert lines[1].endswith("against 0.5 needs about 12 where the candidate is as fast")


def test_a_plan_says_how_the_requests_would_move(airflow, slipway):
    how = "canary: 5, 25 % of the requests, each watched for 60 s; then all of them"
    ends_planned(airflow, live="demo-555555555555", rollout=how)

    assert f"rollout: {how}" in slipway("plan", "demo")[1]


def test_a_plan_says_what_a_release_on_the_gpus_of_the_live_one_risks(airflow, slipway):
    lost = {"live": "demo-555555555555", "replicas": 1, "kept": 0, "seconds": 900.0}
    ends_planned(airflow, live="demo-555555555555", forecast=FORECAST, interruption=lost)

    printed = slipway("plan", "demo")[1]

    assert (
        "risk: rollout.surge none stops demo-555555555555 before the candidate starts: every request fails" in printed
    )
    assert "about 15 min" in printed


def test_a_first_release_has_no_time(airflow, slipway):
    ends_planned(airflow, forecast=FORECAST | {"of": None, "gpu_hours": 0.0, "cost": None})

    printed = slipway("plan", "demo")[1]

    assert "time: unknown, because no promoted or refused release of demo has left the times of its steps" in printed


def test_gpus_of_steps_and_candidate_are_printed_without_times_too(airflow, slipway):
    steps = [each | {"seconds": None, "gpu_hours": None} for each in FORECAST["steps"]]
    untimed = {"of": None, "steps": steps, "gpu": "NVIDIA-L4", "gpu_hours": None, "candidate_gpu_hours": None}
    ends_planned(airflow, forecast=FORECAST | untimed)

    printed = slipway("plan", "demo")[1]

    assert "gpus (NVIDIA-L4): 4 in build, 4 for the candidate from roll-out to promote\n" in printed
    assert "time: unknown" in printed


def test_a_release_without_times_of_the_steps_that_will_run_foretells_none(airflow, slipway):
    steps = [each | {"seconds": None, "gpu_hours": None} for each in FORECAST["steps"]]
    ends_planned(airflow, forecast=FORECAST | {"steps": steps, "gpu_hours": None, "cost": None})

    assert "time: unknown, because demo-555555555555 has left no times of these steps" in slipway("plan", "demo")[1]


@pytest.mark.parametrize(
    ("gpu_bytes", "words"),
    [
        (0, "; quantize needs at most 1 B of scratch and 2 B of memory\n"),
        (3, "; quantize needs at most 1 B of scratch, 2 B of memory and 3 B of GPU memory for weights\n"),
    ],
)
def test_what_quantize_needs_is_printed_where_it_runs(airflow, slipway, gpu_bytes, words):
    estimate = Estimate(download_bytes=1, scratch_bytes=1, memory_bytes=2, gpu_bytes=gpu_bytes)
    ends_planned(airflow, stages=UNSTORED, estimate=estimate)
    assert words in slipway("plan", "demo")[1]

    ends_planned(airflow, estimate=estimate)
    assert "quantize needs" not in slipway("plan", "demo")[1]


def test_times_of_a_release_that_is_not_live_say_so(airflow, slipway):
    ends_planned(airflow, forecast=FORECAST)

    assert "as demo-555555555555 took, which is not live; publish" in slipway("plan", "demo")[1]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("refused", "took, which was refused;"),
        ("rolled-back", "took, which was rolled back;"),
        ("previous", "took, which is a previous release;"),
    ],
)
def test_what_became_of_the_release_that_left_the_times_is_said(airflow, slipway, state, words):
    ends_planned(airflow, forecast=FORECAST | {"state": state})

    assert words in slipway("plan", "demo")[1]


def test_times_of_another_kind_of_release_are_printed_with_a_caution(airflow, slipway):
    ends_planned(
        airflow, forecast=FORECAST | {"differs": ["engine.gpu: NVIDIA-L4 → NVIDIA-A10G", "gate.quality differs"]}
    )

    words = "so these times may be far off: engine.gpu: NVIDIA-L4 → NVIDIA-A10G; gate.quality differs"
    assert f"caution: demo-555555555555 is not quite like this release, {words}" in slipway("plan", "demo")[1]


@pytest.mark.parametrize(
    ("cost", "words"), [(0.0, "0.00 USD"), (0.004, "< 0.01 USD"), (0.005, "0.01 USD"), (0.016, "0.02 USD")]
)
def test_a_cost_below_a_cent_is_not_printed_as_none(airflow, slipway, cost, words):
    ends_planned(airflow, forecast=FORECAST | {"cost": cost})

    assert f", {words}, as demo" in slipway("plan", "demo")[1]


MOVED = {"download_bytes": 361, "download_files": 1, "copied_bytes": 72_000, "copied_files": 198}
UNSTORED = {stage: one.model_copy(update={"changed": ("new",)}) for stage, one in release().plan.stages.items()}


@pytest.mark.parametrize(
    ("moved", "words"),
    [
        (
            {},
            "estimate: 361 B in 1 file to download, 72.0 kB in 198 files copied within the store; quantize needs at most",
        ),
        (
            {"download_bytes": 0, "download_files": 0},
            "estimate: 72.0 kB in 198 files copied within the store; quantize needs at most",
        ),
        ({"copied_bytes": 0, "copied_files": 0}, "estimate: 361 B in 1 file to download; quantize needs at most"),
        (
            {"kept_bytes": 9, "kept_files": 1},
            "72.0 kB in 198 files copied within the store, 9 B in 1 file stored already by an unfinished download; quantize",
        ),
        (
            {"upper_bound": True},
            "361 B in 1 file to download (fewer if other downloads in the store have some), 72.0 kB in",
        ),
        (dict.fromkeys(MOVED, 0), "estimate: nothing to download; quantize needs at most"),
        ({"repository": {"size_bytes": 1000, "of": None}}, "serving: each pod fetches 1.0 kB\n"),
        (
            {"repository": {"size_bytes": 1000, "of": "demo-555555555555"}},
            "serving: each pod fetches about 1.0 kB, in proportion to demo-555555555555",
        ),
        ({"repository": None}, "serving: what each pod fetches is unknown before build has run"),
    ],
)
def test_bytes_over_the_network_within_the_store_and_to_each_pod_are_told_apart(airflow, slipway, moved, words):
    ends_planned(airflow, stages=UNSTORED, transfer=MOVED | moved)

    assert words in slipway("plan", "demo")[1]


def test_a_stored_stage_has_no_reason(airflow, slipway):
    stages = {stage: one.model_copy(update={"stored": True}) for stage, one in UNSTORED.items()}
    ends_planned(airflow, live="demo-555555555555", stages=stages)

    lines = [line.split() for line in slipway("plan", "demo")[1].splitlines() if line.startswith("  = ")]

    assert [len(line) for line in lines] == [4] * len(stages)  # sign, stage, word and key


def test_a_plan_of_nothing_says_what_it_leaves_out(airflow, slipway):
    ends_planned(airflow, action="nothing", live="demo-555555555555", unapplied=("gate",))

    assert "live and matches the request; changes of gate apply with the next release" in slipway("plan", "demo")[1]


def test_a_program_gets_one_document_on_stdout(airflow, slipway):
    ends_planned(airflow, forecast=FORECAST)

    code, printed = slipway("plan", "demo", "--json")

    document = json.loads(printed.out)
    assert (code, document["forecast"]["cost"]) == (0, 20.5)
    assert document["plan"]["stages"]["download"]["stored"] is True


def test_a_program_gets_a_refusal_as_a_document_too(airflow, slipway):
    airflow.dags[DAG] = failed("plan", "AirflowFailException", "plan: sm_75 cannot run fp8")

    code, printed = slipway("plan", "demo", "--json")

    document = json.loads(printed.out)
    assert (code, document) == (65, {"error": "failed: plan: sm_75 cannot run fp8", "exit_code": 65})


def test_a_person_gets_no_document_with_a_refusal(airflow, slipway):
    airflow.dags[DAG] = failed("plan", "AirflowFailException", "plan: sm_75 cannot run fp8")

    assert slipway("plan", "demo")[1].out == ""


def test_a_program_that_waited_in_vain_gets_a_document_too(airflow, slipway):
    airflow.dags[DAG] = Script([Frame("running", {"plan": None})], {})

    code, printed = slipway("plan", "demo", "--json", "--timeout", "1")

    assert code == 124
    assert json.loads(printed.out)["exit_code"] == code


@pytest.fixture
def files(tmp_path):
    """A spec and a site in files, as options and an argument."""
    spec, site = tmp_path / "demo.yaml", tmp_path / "site.yaml"
    spec.write_text(yaml.safe_dump(SPEC))
    site.write_text(yaml.safe_dump(SITE))
    return ["--site", str(site), "plan", str(spec)]


def test_a_file_is_planned_by_the_steps_environment_alone(slipway, files, monkeypatch, tmp_path):
    monkeypatch.setattr(step_process, "PYTHON", tmp_path / "absent")

    code, printed = slipway(*files)

    assert code == 65
    assert "environments tasks" in printed


def test_a_run_of_airflow_has_no_place_in_the_plan_of_a_file(slipway, files):
    code, printed = slipway(*files, "--run-id", "one")

    assert (code, "--run-id names a run of Airflow" in printed) == (65, True)


def test_an_error_of_the_planning_process_ends_with_its_code_and_its_words(slipway, files, monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'model org/absent does not exist' > \"$SLIPWAY_TERMINATION_LOG\"\nexit 65\n")
    python.chmod(0o755)
    monkeypatch.setattr(step_process, "PYTHON", python)

    code, printed = slipway(*files)

    assert (code, "slipway: model org/absent does not exist" in printed) == (65, True)
    printed = slipway(*files, "--json")[1]
    assert json.loads(printed.out) == {
        "error": "model org/absent does not exist",
        "exit_code": 65,
    }


def test_each_model_of_a_fleets_file_is_planned_whatever_became_of_another(slipway, files, monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "no plan of $5" > "$SLIPWAY_TERMINATION_LOG"\nexit 75\n')
    python.chmod(0o755)
    monkeypatch.setattr(step_process, "PYTHON", python)
    Path(files[-1]).write_text(yaml.safe_dump({**SPEC, "serving": {"shape": ["cpu-1", "cpu-2"]}}))

    code, printed = slipway(*files, "--json")

    document = FleetPlanDocument.model_validate_json(printed.out)
    assert (code, document.name, document.members) == (75, "demo", [])
    assert [(each.part, each.exit_code) for each in document.problems] == [("demo-cpu-1", 75), ("demo-cpu-2", 75)]
    assert "demo-cpu-2.json" in document.problems[1].text
