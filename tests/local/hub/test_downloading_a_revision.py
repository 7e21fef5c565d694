import hashlib
from pathlib import Path

import pytest
from huggingface_hub.errors import (
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

MODEL = {
    "refs": {"branches": {"main": "second", "release/1.0": "first"}, "tags": {"v1": "first"}},
    "revisions": [
        {"name": "first", "files": "first"},
        {"name": "second", "from": "first", "files": "overlay"},
    ],
}
FIRST = {
    "README.md": b"# old\n",
    "config.json": b'{"hidden_size": 8}\n',
    "model.safetensors": b"weights" * 100,
    "tokenizer/vocab.json": b"{}",
    "large.json": b"x" * (1024 * 1024 + 1),
    "empty.txt": b"",
}


def git_blob_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@pytest.fixture(scope="module")
def running(write_repository, start_hub):
    write_repository("acme/tiny", MODEL, first=FIRST, overlay={"README.md": b"# new\n"})
    write_repository(
        "datasets/acme/prompts",
        {"refs": {"branches": {"main": "r1"}}, "revisions": [{"name": "r1", "files": "r1"}]},
        r1={"data/train.jsonl": b'{"text": "a"}\n'},
    )
    return start_hub()


@pytest.fixture
def hub(running):
    return running.begin()


@pytest.mark.parametrize(
    ("revision", "readme"), [("v1", b"# old\n"), ("release/1.0", b"# old\n"), ("main", b"# new\n"), (None, b"# new\n")]
)
def test_a_tag_a_branch_and_the_default_give_the_files_of_their_revision(hub, tmp_path, revision, readme):
    folder = Path(hub.api().snapshot_download("acme/tiny", revision=revision, cache_dir=tmp_path / "cache"))

    found = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert found == {**FIRST, "README.md": readme}


def test_a_commit_id_gives_the_same_files_as_its_tag(hub, tmp_path):
    commit = hub.api().model_info("acme/tiny", revision="v1").sha

    folder = Path(hub.api().snapshot_download("acme/tiny", revision=commit, cache_dir=tmp_path / "cache"))

    assert folder.name == commit
    assert (folder / "README.md").read_bytes() == b"# old\n"


def test_announced_digests_are_those_of_the_downloaded_bytes(hub, tmp_path):
    info = hub.api().model_info("acme/tiny", files_metadata=True)
    folder = Path(hub.api().snapshot_download("acme/tiny", cache_dir=tmp_path / "cache"))

    assert {sibling.rfilename for sibling in info.siblings if sibling.lfs} == {"model.safetensors", "large.json"}
    for sibling in info.siblings:
        content = (folder / sibling.rfilename).read_bytes()
        assert sibling.size == len(content)
        if sibling.lfs:
            assert sibling.lfs.sha256 == hashlib.sha256(content).hexdigest()
        else:
            assert sibling.blob_id == git_blob_id(content)


def test_a_readme_only_revision_has_another_commit_and_the_same_other_digests(hub):
    old, new = (hub.api().model_info("acme/tiny", revision=name, files_metadata=True) for name in ("v1", "main"))

    assert old.sha != new.sha
    changed = {a.rfilename for a, b in zip(old.siblings, new.siblings, strict=True) if a.blob_id != b.blob_id}
    assert changed == {"README.md"}


def test_commit_ids_stay_when_the_server_starts_again(hub, start_hub):
    again = start_hub("other")

    assert again.api().model_info("acme/tiny").sha == hub.api().model_info("acme/tiny").sha
    again.stop()


def test_the_tree_lists_folders_and_what_is_in_them(hub):
    top = {entry.path for entry in hub.api().list_repo_tree("acme/tiny")}
    below = {entry.path for entry in hub.api().list_repo_tree("acme/tiny", "tokenizer")}
    everything = {entry.path for entry in hub.api().list_repo_tree("acme/tiny", recursive=True)}

    assert "tokenizer" in top
    assert "tokenizer/vocab.json" not in top
    assert below == {"tokenizer/vocab.json"}
    assert everything == {*FIRST, "tokenizer"}


def test_paths_and_refs_answer_as_the_client_reads_them(hub):
    paths = hub.api().get_paths_info("acme/tiny", ["model.safetensors", "tokenizer", "absent"])
    refs = hub.api().list_repo_refs("acme/tiny")

    assert [(path.path, getattr(path, "size", None)) for path in paths] == [
        ("model.safetensors", 700),
        ("tokenizer", None),
    ]
    assert {ref.name for ref in refs.branches} == {"main", "release/1.0"}
    assert [(ref.name, ref.target_commit) for ref in refs.tags] == [
        ("v1", hub.api().model_info("acme/tiny", revision="v1").sha)
    ]


def test_a_dataset_file_is_downloaded_from_the_dataset_space(hub, tmp_path):
    file = hub.api().hf_hub_download(
        "acme/prompts", "data/train.jsonl", repo_type="dataset", cache_dir=tmp_path / "cache"
    )

    assert Path(file).read_bytes() == b'{"text": "a"}\n'
    assert hub.api().dataset_info("acme/prompts").siblings[0].rfilename == "data/train.jsonl"


def test_a_second_snapshot_downloads_no_file_again(hub, tmp_path):
    for _ in range(2):
        hub.api().snapshot_download("acme/tiny", cache_dir=tmp_path / "cache")

    assert len(hub.requests("GET", "/model.safetensors")) == 1


@pytest.mark.parametrize("token", [False, "hf_anybody"])
def test_an_unknown_repository_is_the_clients_repository_not_found(hub, tmp_path, token):
    with pytest.raises(RepositoryNotFoundError):
        hub.api(token).model_info("acme/absent")
    with pytest.raises(RepositoryNotFoundError):
        hub.api(token).hf_hub_download("acme/absent", "config.json", cache_dir=tmp_path)


def test_an_unknown_revision_is_the_clients_revision_not_found(hub, tmp_path):
    with pytest.raises(RevisionNotFoundError):
        hub.api().model_info("acme/tiny", revision="v9")
    with pytest.raises(RevisionNotFoundError):
        hub.api().hf_hub_download("acme/tiny", "config.json", revision="v9", cache_dir=tmp_path)


def test_an_unknown_file_is_the_clients_entry_not_found(hub, tmp_path):
    with pytest.raises(RemoteEntryNotFoundError):
        hub.api().hf_hub_download("acme/tiny", "absent.json", cache_dir=tmp_path)


def test_the_server_writes_its_address_privately_and_ends_on_sigterm(running, start_hub):
    hub = start_hub("ended")
    announcement = hub.state / "server.json"

    assert announcement.stat().st_mode & 0o777 == 0o600
    assert str(hub.announced["port"]) in announcement.read_text()
    assert hub.stop() == 0
    assert not announcement.exists()
