"""What a plan says of the time that its steps will take, and a plan that leaves nothing behind."""

from datetime import UTC, datetime

import pytest

from tasks.contracts.artifact import STAGES
from tasks.contracts.base import canonical_json
from tasks.contracts.plan import PlanRequest
from tasks.contracts.release import StepResult
from tasks.steps import plan
from tests.fakes.releases import SPEC, spec
from tests.fakes.workspace import workspace
from tests.unit.steps.plan.test_planning import go_live, hub, planned, release_of, store  # noqa: F401 - fixtures


def made(store, release, step, seconds, outcome="done", data=None):  # noqa: F811
    """Write the result that a step leaves."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    result = StepResult(
        step=step, run="r", outcome=outcome, summary="", started_at=at, seconds=seconds, data=data or {}
    )
    uri = f"s3://bucket/releases/{release.spec.name}/{release.id}/results/{step}.json"
    store.put_bytes(uri, canonical_json(result.model_dump(mode="json")))


def keep(around, folder, release, stage, seconds=0):
    """Store the files of a folder as a stage's artifact of the release."""
    key = release.plan.stages[stage].key
    around.artifacts.store(stage, key, folder, inputs={}, producer={}, metrics={}, seconds=seconds)


def written(folder, files):
    """A new folder with these files."""
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def around(tmp_path, hub, store):  # noqa: F811
    """A workspace over the same store."""
    (tmp_path / "around").mkdir()
    return workspace(tmp_path / "around", hub=hub, store=store)


def test_times_are_those_of_the_live_release(planned, store, tmp_path, hub):  # noqa: F811
    first = planned()
    release = release_of(store, first)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "file").write_bytes(b"x")
    (tmp_path / "w").mkdir()
    around = workspace(tmp_path / "w", hub=hub, store=store)
    keep(around, tmp_path / "made", release, "download", seconds=70)
    assert around.layout.result("demo", release.id, "gate").endswith("/results/gate.json")
    for step, seconds, outcome in (
        ("benchmark", 30.0, "done"),
        ("gate", 9.0, "failed"),
        ("check-network", 1.5, "stored"),
    ):
        made(store, release, step, seconds, outcome)
    go_live(store, first)

    forecast = planned(revision="v2", run="run-2").data["forecast"]

    seconds = {each["step"]: each["seconds"] for each in forecast["steps"]}
    larger = len(b"better weights") - len(b"weights")
    assert forecast["of"] == release.id
    assert seconds["download"] == 70 * (release.plan.download_bytes + larger) / release.plan.download_bytes
    assert (seconds["benchmark"], seconds["check-network"], seconds["gate"], seconds["quantize"]) == (
        30,
        1.5,
        None,
        None,
    )


def test_a_stored_stage_of_a_first_release_has_no_reason(planned, store, around, tmp_path):  # noqa: F811
    keep(around, written(tmp_path / "made", {"file": b"x"}), release_of(store, planned()), "download")

    stages = planned(run="run-2").data["stages"]

    assert stages["download"]["changed"] == []
    assert {stage for stage, each in stages.items() if each["changed"] == ["no release is live"]} == {*STAGES[1:]}


def test_what_clients_lose_without_a_surge_is_part_of_the_plan_once_something_is_live(planned, store):  # noqa: F811
    asked = spec(rollout={"surge": "none"})
    first = planned(asked)
    assert first.data["interruption"] is None
    made(store, release_of(store, first), "benchmark", 60.0)
    go_live(store, first)

    found = planned(asked, revision="v2", run="run-2").data

    assert found["interruption"] == {"live": first.data["release_id"], "replicas": 1, "kept": 0, "seconds": 60.0}
    assert found["plan"]["rollout"].endswith("on GPUs that the live release gave up for the candidate")


def test_requests_that_comparisons_will_need_follow_from_the_live_releases_gate(planned, store):  # noqa: F811
    line = {"metric": "requests_per_s", "at_least_ratio": 0.9, "of": "live", "concurrency": 1}
    gate = {**SPEC["gate"], "expect": [line]}
    first = planned(spec(gate=gate))
    judged = {
        "expectation": line,
        "what": "requests_per_s at 1 at once / live",
        "verdict": "passed",
        "observed": 1.0,
        "limit": 0.9,
        "unit": "x",
        "count": 64,
        "interval": [0.8, 1.25],
        "why": "",
    }
    report = {"release_id": "demo-0", "live": None, "verdict": "passed", "judgements": [judged]}
    made(store, release_of(store, first), "gate", 1.0, data={"report": report})
    go_live(store, first)

    needed = planned(spec(gate=gate), revision="v2", run="run-2").data["needed"]

    assert [(each["what"], each["allowed"]) for each in needed] == [("requests_per_s at 1 at once / live", 64)]
    assert needed[0]["requests"] > 64


def test_a_plan_of_nothing_has_no_forecast(planned, store):  # noqa: F811
    go_live(store, planned())

    assert planned(run="run-2").data["forecast"] is None


def test_a_look_plans_the_same_and_writes_nothing(planned, store, tmp_path, hub):  # noqa: F811
    first = planned()
    made(store, release_of(store, first), "benchmark", 30.0)
    go_live(store, first)
    before = dict(store.objects)
    (tmp_path / "look").mkdir()
    request = PlanRequest(spec=spec(), run="by-hand", revision="v2")

    preview = plan.look(request, workspace(tmp_path / "look", hub=hub, store=store))

    assert store.objects == before
    assert preview.plan.release_id == planned(revision="v2", run="run-2").data["release_id"]
    assert preview.forecast.of == first.data["release_id"]


def test_a_look_says_what_of_the_spec_is_not_applied(planned, store, tmp_path, hub):  # noqa: F811
    go_live(store, planned())
    (tmp_path / "look").mkdir()
    request = PlanRequest(spec=spec(serving={"replicas": {"min": 2, "max": 2}}), run="by-hand")

    preview = plan.look(request, workspace(tmp_path / "look", hub=hub, store=store))

    assert (preview.plan.action, preview.forecast, preview.unapplied) == ("nothing", None, ("serving",))
