"""What a plan says of the time that its steps will take, and a plan that leaves nothing behind."""

from datetime import UTC, datetime

import pytest

from slipway.tasks.adapters.store import stage_files
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.stored.artifact import STAGES
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.contracts.stored.release import StepResult
from slipway.tasks.steps import plan
from tests.fakes.releases import SPEC, spec
from tests.fakes.workspace import workspace
from tests.unit.steps.plan.test_planning import (  # noqa: F401 - fixtures
    V1_CONFIG,
    go_live,
    hub,
    planned,
    published_uri,
    release_of,
    store,
)


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


def test_a_release_that_was_refused_has_times_where_none_is_live(planned, store):  # noqa: F811
    older, newer = planned(), planned(spec(quantization={"format": "int4"}), run="run-2")
    made(store, release_of(store, older), "benchmark", 30.0)
    channel = Channel(name="demo")
    for outcome in (older, newer):  # the newer one left no times
        at, run = release_of(store, outcome).created_at, outcome.data["plan"]["run"]
        channel = channel.refused(outcome.data["release_id"], at=at, run=run, reason="gate")
    store.put_bytes("s3://bucket/channels/demo.json", canonical_json(channel.model_dump(mode="json")))

    found = planned(revision="v2", run="run-3").data

    seconds = {each["step"]: each["seconds"] for each in found["forecast"]["steps"]}
    assert (found["live"], found["forecast"]["of"]) == (None, older.data["release_id"])
    assert found["forecast"]["state"] == "refused"
    assert seconds["benchmark"] == 30


def test_times_of_the_most_similar_release_are_taken_before_those_of_the_live_one(planned, store):  # noqa: F811
    int4 = spec(quantization={"format": "int4"})
    similar, live = planned(), planned(int4, run="run-2")
    for outcome in (similar, live):
        made(store, release_of(store, outcome), "benchmark", 30.0)
    channel = Channel(name="demo")
    for outcome in (similar, live):
        at = release_of(store, outcome).created_at
        identity, uri = outcome.data["release_id"], outcome.data["release"]
        channel = channel.promoted(identity, uri, at=at, run=identity, keep=2)
    store.put_bytes("s3://bucket/channels/demo.json", canonical_json(channel.model_dump(mode="json")))

    forecast = planned(revision="v2", run="run-3").data["forecast"]
    of_int4 = planned(int4, revision="v2", run="run-4").data["forecast"]

    assert (forecast["of"], forecast["state"]) == (similar.data["release_id"], "previous")
    assert (of_int4["of"], of_int4["state"]) == (live.data["release_id"], "live")


def test_times_of_another_kind_of_release_say_how_it_differs(planned, store):  # noqa: F811
    first = planned(spec(quantization={"format": "int4"}))
    made(store, release_of(store, first), "benchmark", 30.0)
    go_live(store, first)

    forecast = planned(run="run-2").data["forecast"]

    assert (forecast["of"], forecast["differs"]) == (first.data["release_id"], ["quantization.format: int4 → int8"])


def test_a_model_without_an_earlier_release_has_no_times(planned):  # noqa: F811
    assert planned().data["forecast"]["of"] is None


def test_a_file_that_the_live_releases_download_has_is_copied_within_the_store(planned, store, around, tmp_path):  # noqa: F811
    first = planned()
    release = release_of(store, first)
    keep(
        around,
        written(tmp_path / "made", {"config.json": V1_CONFIG, "model.safetensors": b"weights"}),
        release,
        "download",
    )
    go_live(store, first)
    forced, other = (planned(run=f"run-{n}", **how).data for n, how in enumerate(({"force": True}, {"revision": "v2"})))

    weights, listed = len(b"weights"), release.plan.files
    assert {file.path: file.digest[:6] for file in listed if file.path.startswith(("con", "mod"))} == {
        "config.json": "git-sh",
        "model.safetensors": "sha256",
    }
    assert first.data["transfer"]["copied_files"] == 0
    assert (forced["transfer"]["copied_bytes"], forced["transfer"]["copied_files"]) == (weights, 1)
    assert forced["transfer"]["download_bytes"] == release.plan.download_bytes - weights
    assert forced["transfer"]["download_files"] == len(listed) - 1
    assert other["transfer"]["copied_files"] == 0


def test_a_file_of_another_model_is_copied_within_the_store(planned, store, around, tmp_path):  # noqa: F811
    other = written(tmp_path / "other", {"base.safetensors": b"weights"})
    around.artifacts.store("download", "e" * 64, other, inputs={}, producer={}, metrics={}, seconds=9.0)

    moved = planned().data["transfer"]

    assert (moved["copied_bytes"], moved["copied_files"], moved["upper_bound"]) == (len(b"weights"), 1, False)


@pytest.mark.parametrize("limit", ["ARTIFACTS_GLANCED_AT", "OBJECTS_GLANCED_AT"])
def test_with_more_downloads_than_plan_reads_the_bytes_are_an_upper_bound(
    planned,  # noqa: F811
    store,  # noqa: F811
    around,
    tmp_path,
    monkeypatch,
    limit,
):
    monkeypatch.setattr(stage_files, limit, 1)
    release = release_of(store, planned())
    for number, key in enumerate("ef"):
        folder = written(tmp_path / key, {"model.safetensors": b"better weights", "number": bytes([number])})
        around.artifacts.store("download", key * 64, folder, inputs={}, producer={}, metrics={}, seconds=9.0)

    moved = planned(revision="v2", run="run-2").data["transfer"]

    assert (moved["copied_files"], moved["upper_bound"]) == (0, True)
    assert moved["download_bytes"] > release.plan.download_bytes


def test_what_an_unfinished_download_stored_is_neither_moved_nor_counted_as_time(planned, store, around, tmp_path):  # noqa: F811
    first = planned()
    release = release_of(store, first)
    keep(around, written(tmp_path / "made", {"file": b"x"}), release, "download", seconds=70)
    go_live(store, first)
    next_one = release_of(store, planned(revision="v2", run="run-2"))
    folder = around.layout.artifact("download", next_one.plan.stages["download"].key)
    store.put_bytes(f"{folder}/model.safetensors", b"better weights")
    store.put_bytes(f"{folder}/config.json", V1_CONFIG)  # the Hub lists it without its sha256: it is brought again

    found = planned(revision="v2", run="run-3").data

    moved, total, kept = found["transfer"], next_one.plan.download_bytes, len(b"better weights")
    assert (moved["kept_bytes"], moved["kept_files"], moved["download_bytes"]) == (kept, 1, total - kept)
    download_s = next(each["seconds"] for each in found["forecast"]["steps"] if each["step"] == "download")
    assert download_s == pytest.approx(70 * (total - kept) / release.plan.download_bytes)


def test_half_a_file_of_an_unfinished_download_is_brought_again(planned, store, around):  # noqa: F811
    release = release_of(store, planned())
    folder = around.layout.artifact("download", release.plan.stages["download"].key)
    store.put_bytes(f"{folder}/model.safetensors", b"wei")

    assert planned(run="run-2").data["transfer"]["kept_files"] == 0


def test_what_is_downloaded_already_is_not_moved(planned, store, around, tmp_path):  # noqa: F811
    keep(
        around, written(tmp_path / "made", {"model.safetensors": b"weights"}), release_of(store, planned()), "download"
    )

    moved = planned(run="run-2").data["transfer"]

    assert (moved["download_files"], moved["copied_files"]) == (0, 0)


def test_a_pod_fetches_what_is_built_or_as_much_as_an_earlier_release_of_the_format(planned, store, around, tmp_path):  # noqa: F811
    first = planned()
    release, folder = release_of(store, first), written(tmp_path / "made", {"model.bin": b"x" * 1000})
    go_live(store, first)
    store.delete([published_uri(release)])
    assert planned(revision="v2", run="run-2").data["transfer"]["repository"] is None
    keep(around, folder, release, "publish")

    second = planned(revision="v2", run="run-3")
    other_format = planned(spec(quantization={"format": "int4"}), run="run-4").data["transfer"]

    larger = second.data["plan"]["source"]
    share = sum(file["size_bytes"] for file in larger["files"]) / release.plan.download_bytes
    assert second.data["transfer"]["repository"] == {"size_bytes": round(1000 * share), "of": release.id}
    assert other_format["repository"] is None
    keep(around, folder, release_of(store, second), "build")
    assert planned(revision="v2", run="run-5").data["transfer"]["repository"] == {"size_bytes": 1000, "of": None}


def test_a_stored_stage_of_a_first_release_has_no_reason(planned, store, around, tmp_path):  # noqa: F811
    keep(around, written(tmp_path / "made", {"file": b"x"}), release_of(store, planned()), "download")

    stages = planned(run="run-2").data["stages"]

    assert stages["download"]["changed"] == []
    assert {stage for stage, each in stages.items() if each["changed"] == ["no release is live to compare with"]} == {
        *STAGES[1:]
    }


def test_what_clients_lose_without_a_surge_is_part_of_the_plan_once_something_is_live(planned, store):  # noqa: F811
    asked = spec(rollout={"surge": "none"})
    first = planned(asked)
    assert first.data["interruption"] is None
    made(store, release_of(store, first), "benchmark", 60.0)
    go_live(store, first)

    found = planned(asked, revision="v2", run="run-2").data

    live = first.data["release_id"]
    without = ["roll-out", "smoke-test", "gate", "promote"]
    expected = {"live": live, "replicas": 1, "kept": 0, "seconds": 60.0, "of": live, "untimed": without}
    assert found["interruption"] == expected
    assert found["plan"]["rollout"].endswith("on GPUs that the live release gave up for the candidate")


def test_requests_that_comparisons_will_need_follow_from_the_live_releases_gate(planned, store):  # noqa: F811
    line = {"metric": "requests_per_s", "at_least_ratio": 0.9, "of": "live", "concurrency": 1}
    gate = {**SPEC["gate"], "expect": [line]}
    first = planned(spec(gate=gate))
    judged = {
        "expectation": line,
        "what": "requests_per_s at concurrency 1 / live",
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

    assert [(each["what"], each["allowed"]) for each in needed] == [("requests_per_s at concurrency 1 / live", 64)]
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


def test_a_run_that_only_plans_leaves_the_release_that_it_names_as_a_rollback_needs_it(planned, store):  # noqa: F811
    go_live(store, planned())
    planned(run="run-2", revision="v2")
    before = dict(store.objects)
    changed = spec(serving={"group": "chat"})

    told = planned(changed, run="run-3", revision="v2", plan_only=True).data
    unchanged = planned(run="run-4", plan_only=True).data

    assert store.objects == before
    assert (told["action"], unchanged["action"]) == ("release", "nothing")
    assert told["release"] in store.objects


def test_a_look_says_what_of_the_spec_is_not_applied(planned, store, tmp_path, hub):  # noqa: F811
    go_live(store, planned())
    (tmp_path / "look").mkdir()
    request = PlanRequest(spec=spec(serving={"replicas": {"min": 2, "max": 2}}), run="by-hand")

    preview = plan.look(request, workspace(tmp_path / "look", hub=hub, store=store))

    assert (preview.plan.action, preview.forecast, preview.unapplied) == ("nothing", None, ("serving",))
