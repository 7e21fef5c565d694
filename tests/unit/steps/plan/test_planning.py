import json

import pytest

from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.stored.artifact import STAGES, Manifest
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.steps import plan
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import SPEC, spec
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.workspace import SHAPE, SITE, workspace
from tests.fakes.workspace import site as site_with
from tests.support.refused import refused

REPO = "slipway/demo-llama"
V1_CONFIG = b'{"model_type": "llama"}'
V1 = {
    "README.md": b"about",
    "config.json": V1_CONFIG,
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "pytorch_model.bin": b"pickle",
    "original/consolidated.safetensors": b"twice",
}
QUESTIONS = "hf://datasets/org/questions@main/eval.jsonl"


@pytest.fixture
def hub():
    revisions = {
        "v1": V1,
        "v1-readme": {**V1, "README.md": b"more about"},
        "v2": {**V1, "model.safetensors": b"better weights"},
        "pickle-only": {"config.json": V1_CONFIG, "pytorch_model.bin": b"pickle", "tokenizer.json": b"{}"},
    }
    return MemoryHub({REPO: revisions}, {QUESTIONS: [{"prompt": "?", "answer": "!"}]})


@pytest.fixture
def store():
    return MemoryObjectStore()


@pytest.fixture
def planned(tmp_path, hub, store):
    """Plan the demo spec; the outcome."""

    def run(asked=None, *, name="1", run="run-1", **changes):
        fields = {key: changes.pop(key) for key in PlanRequest.model_fields if key in changes}
        request = PlanRequest(spec=asked or spec(), run=run, **fields)
        (tmp_path / name).mkdir(exist_ok=True)
        return plan.run(request, workspace(tmp_path / name, hub=hub, store=store, **changes))

    return run


def release_of(store, outcome):
    return Release.model_validate_json(store.read_bytes(outcome.data["release"]))


def published_uri(release):
    return f"s3://bucket/artifacts/publish/{release.plan.stages['publish'].key}/manifest.json"


def go_live(store, outcome, uri=None):
    """Write what publish and promote leave of the planned release."""
    release = release_of(store, outcome)
    manifest = Manifest(
        stage="publish",
        key=release.plan.stages["publish"].key,
        created_at=release.created_at,
        seconds=0,
        files=(),
        inputs={},
        producer={},
        metrics={},
    )
    store.put_bytes(published_uri(release), canonical_json(manifest.model_dump(mode="json")))
    uri = uri or outcome.data["release"]
    channel = Channel(name="demo").promoted(release.id, uri, at=release.created_at, run="r", keep=2)
    store.put_bytes("s3://bucket/channels/demo.json", canonical_json(channel.model_dump(mode="json")))


def test_a_plan_leaves_a_release_that_the_other_steps_read(planned, store):
    outcome = planned()

    release = release_of(store, outcome)
    assert release.id == outcome.data["release_id"] == f"demo-{release.plan.stages['publish'].key[:12]}"
    assert release.plan.run == "run-1"
    assert release.plan.missing == STAGES


def test_only_weights_tokenizer_and_configuration_at_the_top_are_taken(planned, store):
    files = [file.path for file in release_of(store, planned()).plan.source.files]

    assert files == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def test_a_commit_that_changes_only_the_readme_is_the_same_release(planned, store):
    go_live(store, planned())

    outcome = planned(revision="v1-readme", run="run-2")

    assert outcome.data["action"] == "nothing"
    assert "nothing to do" in outcome.summary


def test_a_plan_of_nothing_says_when_the_live_release_was_checked(planned, store):
    go_live(store, planned())
    uri = "s3://bucket/releases/demo/checked.json"
    assert not store.exists(uri)

    outcome = planned(revision="v1-readme", run="run-2")

    checked = json.loads(store.read_bytes(uri))
    assert (checked["release_id"], checked["run"]) == (outcome.data["release_id"], "run-2")


def test_a_plan_of_nothing_leaves_the_live_release_as_it_was(planned, store):
    first = planned()
    go_live(store, first)
    before = store.read_bytes(first.data["release"])

    planned(run="run-2")

    assert store.read_bytes(first.data["release"]) == before


def test_a_plan_of_nothing_names_the_document_that_the_channel_leads_to(planned, store):
    first = planned()
    uri = first.data["release"].replace("release.json", "release-run-7.json")
    store.put_bytes(uri, store.read_bytes(first.data["release"]))
    go_live(store, first, uri)

    assert planned(run="run-8").data["release"] == uri


def test_a_live_release_whose_published_artifact_is_missing_is_refused(planned, store):
    first = planned()
    go_live(store, first)
    store.delete([published_uri(release_of(store, first))])

    with refused(what=f"{first.data['release_id']} is live", remedy="docs/runbook.md"):
        planned(run="run-2")

    assert not store.exists("s3://bucket/releases/demo/checked.json")


def test_other_weights_are_another_release_and_the_plan_says_why(planned, store):
    go_live(store, planned())

    outcome = planned(revision="v2", run="run-2")

    assert outcome.data["action"] == "release"
    assert outcome.data["stages"]["download"]["changed"][0].startswith("files.model.safetensors: ")
    assert outcome.data["stages"]["quantize"]["changed"] == ["download changed"]


def test_what_is_stored_is_not_planned_again(planned, tmp_path, hub, store):
    first = release_of(store, planned())
    made = tmp_path / "made"
    made.mkdir()
    (made / "file").write_bytes(b"x")
    (tmp_path / "other").mkdir()
    workspace(tmp_path / "other", hub=hub, store=store).artifacts.store(
        "download", first.plan.stages["download"].key, made, inputs={}, producer={}, metrics={}, seconds=0
    )

    again = release_of(store, planned())

    assert again.plan.missing == STAGES[1:]
    assert again.id == first.id


def test_force_makes_everything_anew_though_it_is_live(planned, store):
    first = planned()
    go_live(store, first)

    forced = planned(run="run-2", force=True)

    assert forced.data["action"] == "release"
    assert forced.data["release_id"] != first.data["release_id"]
    assert forced.data["release_id"] == planned(run="run-2", force=True).data["release_id"], "a retry is no other run"


def test_a_live_release_that_cannot_be_read_does_not_block_the_next_one(planned, store):
    first = planned()
    go_live(store, first)
    store.put_bytes(first.data["release"], b"{}")

    outcome = planned(revision="v2", run="run-2")

    assert outcome.data["action"] == "release"
    assert outcome.data["stages"]["build"]["changed"] == [
        f"the plan of {first.data['release_id']}, which is live, cannot be read"
    ]


def test_a_change_that_needs_no_new_artifact_is_named_as_not_applied(planned, store):
    go_live(store, planned())

    outcome = planned(spec(serving={"replicas": {"max": 3}}), run="run-2")

    assert outcome.data["action"] == "nothing"
    assert outcome.data["unapplied"] == ["serving"]
    assert "serving apply with the next release" in outcome.summary


def test_later_steps_read_datasets_without_a_way_to_the_hub(planned, store, tmp_path):
    gate = {**SPEC["gate"], "quality": {"dataset": QUESTIONS}}
    pinned = release_of(store, planned(spec(gate=gate))).plan.datasets.quality

    (tmp_path / "later").mkdir()
    later = workspace(tmp_path / "later", hub=MemoryHub(), store=store)

    assert later.datasets.read(pinned) == [{"prompt": "?", "answer": "!"}]


def test_datasets_are_pinned_by_their_digests(planned, store):
    gate = {**SPEC["gate"], "quality": {"dataset": QUESTIONS}}

    pinned = release_of(store, planned(spec(gate=gate))).plan.datasets

    assert pinned.quality.file.path == "eval.jsonl"
    assert pinned.quality.file.digest.startswith("git-sha1:")
    assert pinned.calibration is None


def test_a_dataset_without_texts_to_measure_perplexity_on_is_refused(planned, store):
    gate = {**SPEC["gate"], "quality": {"dataset": QUESTIONS, "perplexity": QUESTIONS}}

    with refused(what="eval.jsonl", found="0 of 1 lines"):
        planned(spec(gate=gate))
    assert not any(uri.endswith("release.json") for uri in store.written)


def test_the_plan_that_the_scheduler_reads_is_the_plan_of_the_release(planned, store):
    outcome = planned()

    assert json.loads(json.dumps(outcome.data["plan"])) == release_of(store, outcome).plan.model_dump(mode="json")


def test_a_template_that_changed_is_another_release_of_the_same_engine(planned, tmp_path, store):
    first = release_of(store, planned())
    template = tmp_path / "1/root/model_repository_templates/openvino/config.pbtxt.j2"
    template.write_text("name: changed")

    second = release_of(store, planned())

    assert second.id != first.id
    assert second.plan.stages["build"].key == first.plan.stages["build"].key


def limited(**limit):
    line = {"metric": "cost_per_million_tokens", **limit}
    return spec(gate={**SPEC["gate"], "expect": [*SPEC["gate"]["expect"], line]})


def test_a_limit_of_costs_needs_a_price_before_anything_runs(planned, store):
    with refused(found="no price for CPUs at site test", remedy="Set prices.cpu_hour in the site file"):
        planned(limited(at_most=2))
    assert store.written == []

    assert planned(limited(at_most=2), prices={"cpu_hour": 0.05}).data["action"] == "release"


def test_no_release_is_too_cheap():
    with pytest.raises(ValueError, match="no release is too cheap"):
        limited(at_least=2)


SHAPES = SITE["shapes"]


@pytest.mark.parametrize(
    ("site_changes", "fields"),
    [
        (
            {"shapes": {**SHAPES, "compute": {**SHAPE, "scratch": "10"}}},
            {"what": "quantize of", "found": "10 in shapes.compute.scratch"},
        ),
        (
            {"shapes": {**SHAPES, "compute": {**SHAPE, "memory": "99Mi"}}},
            {"what": "quantize of", "found": "99Mi in shapes.compute.memory of site test"},
        ),
        ({"shapes": {"small": SHAPE}}, {"what": "no shape serving", "remedy": "Add shapes.serving"}),
        ({"images": {"tasks": "t", "serving": {}}}, {"what": "no serving image for openvino"}),
    ],
)
def test_what_the_site_cannot_do_is_refused_before_any_pod(planned, store, site_changes, fields):
    with refused(**fields):
        planned(**site_changes)

    assert store.written == []


def test_pickles_are_refused_and_the_way_out_is_named(planned):
    with refused(found="only pytorch_model.bin", expected="*.safetensors", remedy="safe_serialization"):
        planned(revision="pickle-only")


def test_a_revision_that_is_not_there_is_refused(planned):
    with refused(what="no revision 'v9'"):
        planned(revision="v9")


GPU_ENGINE = {**SPEC["engine"], "kind": "trt-engine", "gpu": "NVIDIA-L4"}
L4 = {"memory_gib": 22.5, "per_node": 1, "architecture": "sm_89"}


@pytest.mark.parametrize(
    ("gpus", "engine", "fields"),
    [
        ({}, GPU_ENGINE, {"what": "engine.gpu NVIDIA-L4 is not at site test", "found": "no GPUs"}),
        ({"NVIDIA-A100": L4}, GPU_ENGINE, {"found": "NVIDIA-A100", "remedy": "openvino"}),
        (
            {"NVIDIA-L4": L4},
            {**GPU_ENGINE, "tensor_parallel": 2},
            {"found": "1 NVIDIA-L4", "expected": "tensor x pipeline of 2 nodes: 1 x 2"},
        ),
        (
            {"NVIDIA-L4": L4},
            {**GPU_ENGINE, "kind": "llmapi", "tensor_parallel": 2},
            {"found": "1 NVIDIA-L4", "remedy": "a GPU with more on a node"},
        ),
    ],
)
def test_a_gpu_that_the_site_lacks_is_refused_by_name(planned, gpus, engine, fields):
    asked = spec(engine=engine, quantization={"format": "int4_awq"})

    with refused(**fields):
        planned(asked, gpus=gpus)


def test_a_gpu_id_that_no_node_has_is_refused(planned):
    asked = spec(engine=GPU_ENGINE, quantization={"format": "int4_awq"}, serving={"group": "chat", "gpus": [1]})

    with refused(what="serving.gpus [1]", found="1 NVIDIA-L4 on a node"):
        planned(asked, gpus={"NVIDIA-L4": L4})


def test_a_file_whose_name_no_artifact_may_hold_is_refused_before_it_is_downloaded(planned, hub):
    hub.models[REPO]["odd"] = {**V1, "tokenizer (1).json": b"{}"}

    with refused(what="tokenizer (1).json"):
        planned(revision="odd")


NEW = {"images": {**SITE["images"], "tasks": "tasks:2"}}


@pytest.mark.parametrize(("of_airflow", "of_pods"), [({}, NEW), (NEW, {})])
def test_a_site_file_that_airflow_does_not_have_is_refused_before_anything_is_written(
    planned, store, of_airflow, of_pods
):
    digest = site_with(**of_airflow).digest

    with refused(found=digest, expected=site_with(**of_pods).digest, remedy="docs/cluster-setup.md"):
        planned(site=digest, **of_pods)

    assert store.objects == {}


def test_a_site_file_that_airflow_has_too_is_planned_for(planned):
    assert planned(site=site_with(**NEW).digest, **NEW).data["action"] == "release"
