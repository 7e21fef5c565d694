import pytest

from tasks.contracts.errors import DigestMismatchError, InputError
from tasks.contracts.release import Release
from tasks.steps import download
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import release
from tests.fakes.workspace import workspace

FILES = {"config.json": b"{}", "model.safetensors": b"weights"}


@pytest.fixture
def hub():
    return MemoryHub({"slipway/demo-llama": {"v1": FILES}})


@pytest.fixture
def planned(hub) -> Release:
    """A release whose source is what the Hub has."""
    made = release()
    source = hub.resolve("slipway/demo-llama", "v1")
    return made.model_copy(update={"plan": made.plan.model_copy(update={"source": source})})


def test_the_planned_files_become_the_artifact(planned, hub, tmp_path):
    space = workspace(tmp_path, hub=hub)

    outcome = download.run(planned, space)

    manifest = space.artifacts.find("download", planned.plan.stages["download"].key)
    assert {file.path: file.size_bytes for file in manifest.files} == {"config.json": 2, "model.safetensors": 7}
    assert manifest.producer["commit"] == planned.plan.source.commit
    assert outcome.data["size_bytes"] == 9


@pytest.fixture
def adapted(planned, hub):
    """The release with an adapter."""
    hub.models["org/polite"] = {"main": {"adapter_config.json": b"{}", "adapter_model.safetensors": b"small"}}
    adapters = {"polite": hub.resolve("org/polite", "main")}
    return planned.model_copy(update={"plan": planned.plan.model_copy(update={"adapters": adapters})})


def test_adapters_lie_beside_the_model_each_in_its_own_folder(adapted, hub, tmp_path):
    space = workspace(tmp_path, hub=hub)

    download.run(adapted, space)

    manifest = space.artifacts.find("download", adapted.plan.stages["download"].key)
    assert {file.path: file.size_bytes for file in manifest.files} == {
        "config.json": 2,
        "lora/polite/adapter_config.json": 2,
        "lora/polite/adapter_model.safetensors": 5,
        "model.safetensors": 7,
    }
    assert manifest.producer["lora polite"] == f"org/polite@{adapted.plan.adapters['polite'].commit}"


def test_a_disk_that_has_no_room_for_the_adapters_is_refused(adapted, hub, tmp_path):
    space = workspace(tmp_path, hub=hub, free_bytes=15)

    with pytest.raises(InputError) as caught:
        download.run(adapted, space)

    assert caught.value.what == "scratch has too little space for download of slipway/demo-llama@v1"


def test_a_disk_that_is_too_small_is_refused_before_anything_is_downloaded(planned, hub, tmp_path):
    space = workspace(tmp_path, hub=hub, free_bytes=8)

    with pytest.raises(InputError) as caught:
        download.run(planned, space)

    assert caught.value.what == "scratch has too little space for download of slipway/demo-llama@v1"
    assert list(space.scratch.iterdir()) == []


def test_bytes_other_than_announced_are_never_stored(planned, hub, tmp_path):
    hub.damaged = {"model.safetensors"}
    space = workspace(tmp_path, hub=hub)

    with pytest.raises(DigestMismatchError):
        download.run(planned, space)

    assert space.store.written == []


def test_a_draft_model_lies_beside_the_model_in_a_folder_of_its_own(planned, hub, tmp_path):
    hub.models["org/draft"] = {"main": {"config.json": b"{}", "model.safetensors": b"head"}}
    draft = hub.resolve("org/draft", "main")
    drafted = planned.model_copy(update={"plan": planned.plan.model_copy(update={"draft": draft})})
    space = workspace(tmp_path, hub=hub)

    download.run(drafted, space)

    manifest = space.artifacts.find("download", drafted.plan.stages["download"].key)
    assert {"draft/config.json", "draft/model.safetensors"} < {file.path for file in manifest.files}
    assert manifest.producer["draft"] == f"org/draft@{draft.commit}"
    assert drafted.plan.download_bytes == planned.plan.download_bytes + draft.size_bytes
