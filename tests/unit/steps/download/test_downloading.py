import pytest

from slipway.tasks.adapters.store import stage_files
from slipway.tasks.contracts.errors import DigestMismatchError, UnavailableError
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.steps import download
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import release
from tests.fakes.workspace import workspace

FILES = {"config.json": b"{}", "model.safetensors": b"weights"}


@pytest.fixture
def hub():
    return MemoryHub({"slipway/demo-llama": {"v1": dict(FILES)}})


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


def test_a_model_larger_than_the_disk_is_stored(planned, hub, tmp_path):
    space = workspace(tmp_path, hub=hub, free_bytes=0)

    download.run(planned, space)

    assert space.artifacts.find("download", planned.plan.stages["download"].key).size_bytes == 9
    assert list(space.scratch.iterdir()) == []


def test_bytes_other_than_announced_are_never_stored(planned, hub, tmp_path):
    hub.damaged = {"model.safetensors"}
    space = workspace(tmp_path, hub=hub)

    with pytest.raises(DigestMismatchError):
        download.run(planned, space)

    assert not [uri for uri in space.store.written if uri.endswith("model.safetensors")]
    assert space.artifacts.find("download", planned.plan.stages["download"].key) is None


def test_a_download_that_was_interrupted_continues_with_the_files_that_are_missing(planned, hub, tmp_path):
    hub.models["slipway/demo-llama"]["v1"] |= {"other.safetensors": b"other"}
    source = hub.resolve("slipway/demo-llama", "v1")
    planned = planned.model_copy(update={"plan": planned.plan.model_copy(update={"source": source})})
    space = workspace(tmp_path, hub=hub)
    space.store.unavailable = {"other.safetensors"}
    with pytest.raises(UnavailableError):
        download.run(planned, space)
    space.store.unavailable, hub.brought = set(), []

    download.run(planned, space)

    assert "other.safetensors" in hub.brought
    assert "model.safetensors" not in hub.brought
    assert downloaded_bytes(planned, space) == len(b"other" + b"{}")


def test_a_file_that_another_revision_brought_is_copied_within_the_store(planned, hub, tmp_path):
    space = workspace(tmp_path, hub=hub)
    download.run(planned, space)
    stages = planned.plan.stages
    other = stages | {"download": stages["download"].model_copy(update={"key": "e" * 64})}
    hub.brought = []

    again = planned.model_copy(update={"plan": planned.plan.model_copy(update={"stages": other})})
    outcome = download.run(again, space)

    assert downloaded_bytes(planned, space) == 9
    assert downloaded_bytes(again, space) == 2
    assert hub.brought == ["config.json"]
    assert "9 B, 2 B of it downloaded" in outcome.summary
    manifest = space.artifacts.find("download", "e" * 64)
    assert {file.path: file.size_bytes for file in manifest.files} == {"config.json": 2, "model.safetensors": 7}
    space.artifacts.fetch("download", "e" * 64, tmp_path / "back")
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == b"weights"


def downloaded_bytes(release, space):
    manifest = space.artifacts.find("download", release.plan.stages["download"].key)
    return manifest.metrics["downloaded_bytes"]


def test_only_the_newest_artifacts_are_searched(planned, hub, tmp_path, monkeypatch):
    monkeypatch.setattr(stage_files, "ARTIFACTS_SEARCHED", 1)
    space = workspace(tmp_path, hub=hub)
    download.run(planned, space)
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "model.bin").write_bytes(b"others")
    space.artifacts.store("download", "f" * 64, newer, inputs={}, producer={}, metrics={}, seconds=1.0)
    stages = planned.plan.stages
    other = stages | {"download": stages["download"].model_copy(update={"key": "e" * 64})}
    hub.brought = []

    download.run(planned.model_copy(update={"plan": planned.plan.model_copy(update={"stages": other})}), space)

    assert sorted(hub.brought) == ["config.json", "model.safetensors"]


def test_a_file_that_retention_deletes_meanwhile_comes_from_the_hub(planned, hub, tmp_path):
    space = workspace(tmp_path, hub=hub)
    download.run(planned, space)
    stages = planned.plan.stages
    space.store.delete([f"{space.layout.artifact('download', stages['download'].key)}/model.safetensors"])
    other = stages | {"download": stages["download"].model_copy(update={"key": "e" * 64})}
    hub.brought = []

    download.run(planned.model_copy(update={"plan": planned.plan.model_copy(update={"stages": other})}), space)

    assert sorted(hub.brought) == ["config.json", "model.safetensors"]


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
