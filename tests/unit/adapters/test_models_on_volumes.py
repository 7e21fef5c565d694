"""Models in a folder of a volume: what is pinned, what is read, and that nothing outside the folder ever is."""

import os

import pytest

from slipway.tasks.adapters.hub.folder_files import MAX_FILE_BYTES, MAX_FILES
from slipway.tasks.adapters.hub.reading import in_memory
from slipway.tasks.adapters.hub.volumes import VolumeFolders
from slipway.tasks.contracts.errors import DigestMismatchError, InputError
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.engines.preflight.sources import files_of_release
from tests.fakes.releases import spec
from tests.unit.adapters.test_models_in_folders import FILES, sums_of

FOLDER = "pvc://models/acme/demo"


@pytest.fixture
def volume(tmp_path):
    """The root of a volume with the model in a folder, as a pod mounts it."""
    folder = tmp_path / "volume" / "acme" / "demo"
    folder.mkdir(parents=True)
    for path, data in FILES.items():
        (folder / path).write_bytes(data)
    return tmp_path / "volume"


@pytest.fixture
def folder(volume):
    return volume / "acme" / "demo"


@pytest.fixture
def volumes(volume):
    return VolumeFolders(f"models={volume}")


@pytest.fixture(params=["times", "sums"])
def pinned(request, folder):
    """A folder whose files are pinned by their times, and one whose files are pinned by SHA256SUMS."""
    if request.param == "sums":
        (folder / "SHA256SUMS").write_bytes(sums_of(FILES))
    return folder


def brought(volumes, source, path):
    file = next(file for file in source.files if file.path == path)
    return volumes.bring(source, file, in_memory, lambda _: None)


def refused(volumes, uri=FOLDER):
    with pytest.raises(InputError) as caught:
        volumes.resolve(uri, "")
    return caught.value


def test_every_file_is_pinned_and_comes_as_it_was(volumes, pinned):
    source = volumes.resolve(FOLDER, "")

    assert (source.name, source.is_folder) == (FOLDER, True)
    assert {path: brought(volumes, source, path) for path in FILES} == FILES
    assert volumes.read_file(source, "config.json") == FILES["config.json"]


def test_the_root_of_a_claim_is_a_folder_like_another(volume):
    (volume / "config.json").write_bytes(b"{}")
    (volume / "lost+found").mkdir(mode=0o000)

    source = VolumeFolders(f"models={volume}").resolve("pvc://models", "")

    assert [file.path for file in source.files] == ["config.json"]


def test_with_sha256sums_a_copy_with_other_times_has_the_same_digests(volumes, folder):
    (folder / "SHA256SUMS").write_bytes(sums_of(FILES))
    before = {file.path: file.digest for file in volumes.resolve(FOLDER, "").files}
    os.utime(folder / "model.safetensors", (1, 1))

    after = {file.path: file.digest for file in volumes.resolve(FOLDER, "").files}

    assert {path: after[path] for path in FILES} == {path: before[path] for path in FILES}
    assert before["config.json"].startswith("sha256:")


@pytest.mark.parametrize("change", [b"\0" * 256, b"shorter", None])
def test_a_file_that_changed_since_plan_is_refused_by_name(volumes, pinned, change):
    source, file = volumes.resolve(FOLDER, ""), pinned / "model.safetensors"
    if change is None:
        file.unlink()
    else:
        file.write_bytes(change)

    with pytest.raises((InputError, DigestMismatchError)) as caught:
        brought(volumes, source, "model.safetensors")

    assert f"{FOLDER}/model.safetensors" in caught.value.what


def test_a_file_that_changes_while_it_is_read_is_refused(volumes, folder):
    source = volumes.resolve(FOLDER, "")
    file = next(file for file in source.files if file.path == "model.safetensors")

    def take(remote):
        (folder / "model.safetensors").write_bytes(b"\1" * 256)
        return in_memory(remote)

    with pytest.raises(InputError, match="changed after it was planned"):
        volumes.bring(source, file, take, lambda _: None)


def test_another_version_with_the_size_and_the_time_of_an_archive_is_another_commit(volumes, folder):
    weights = folder / "model.safetensors"
    os.utime(weights, (0, 0))
    before = volumes.resolve(FOLDER, "").commit
    assert volumes.resolve(FOLDER, "").commit == before

    weights.write_bytes(b"\1" * 256)
    os.utime(weights, (0, 0))

    assert volumes.resolve(FOLDER, "").commit != before


SECRET = b"of the pod, and of no model"


def outside(folder):
    secret = folder.parent / "secret"
    secret.write_bytes(SECRET)
    return secret


@pytest.mark.parametrize("target", ["../secret", "{absolute}", "chain", "/proc/self/environ"])
def test_a_link_that_leads_out_of_the_folder_is_refused_by_name(volumes, folder, target):
    (folder / "chain").symlink_to(outside(folder))
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(target.format(absolute=outside(folder)))
    if target != "chain":
        (folder / "chain").unlink()

    refusal = refused(volumes)

    assert refusal.what.endswith("is a link that leads out of its folder")
    assert "cp -L" in refusal.remedy


def test_a_link_that_leads_back_to_itself_is_refused_by_name(volumes, folder):
    (folder / "there").symlink_to("back")
    (folder / "back").symlink_to("there")

    assert refused(volumes).what in {
        f"{FOLDER}/{name} is a link that leads back to itself" for name in ("there", "back")
    }


def test_a_file_that_becomes_a_link_after_plan_is_not_read(volumes, folder):
    (folder / "SHA256SUMS").write_bytes(sums_of({**FILES, "config.json": SECRET}))
    (folder / "config.json").write_bytes(SECRET)
    source = volumes.resolve(FOLDER, "")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(outside(folder))

    with pytest.raises(InputError, match="leads out of its folder"):
        brought(volumes, source, "config.json")


def test_a_link_within_the_folder_is_the_file(volumes, folder):
    (folder / "config.json").rename(folder / "config-v2.json")
    (folder / "config.json").symlink_to("config-v2.json")

    assert volumes.read_file(volumes.resolve(FOLDER, ""), "config.json") == FILES["config.json"]


def test_a_folder_that_is_a_link_out_of_the_volume_is_refused(volumes, volume, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.json").write_bytes(SECRET)
    (volume / "acme" / "link").symlink_to(tmp_path / "elsewhere")

    assert refused(volumes, "pvc://models/acme/link").what == (
        "pvc://models/acme/link is a link that leads out of its folder"
    )


def test_a_special_file_is_refused_and_does_not_block(volumes, folder):
    os.mkfifo(folder / "pipe.safetensors")

    refusal = refused(volumes)

    assert (refusal.what, refusal.found[0]) == (f"{FOLDER}/pipe.safetensors is not a plain file", "p")


@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("pvc://models/acme/other", "does not exist"),
        ("pvc://models/acme/demo/config.json", "is not a folder"),
        ("pvc://models/acme", "holds no files"),
    ],
)
def test_a_folder_that_is_not_there_is_refused_by_name(volumes, volume, uri, what):
    assert refused(volumes, uri).what == f"{uri} {what}"


@pytest.mark.skipif(not os.getuid(), reason="root may read every file")
def test_a_file_that_the_user_of_steps_cannot_read_is_told_with_the_command(volumes, folder):
    (folder / "config.json").chmod(0)

    refusal = refused(volumes)

    assert refusal.what == f"{FOLDER}/config.json may not be read by the user of steps"
    assert "chmod -R a+rX" in refusal.remedy


def test_too_many_files_too_large_a_file_and_a_strange_name_are_refused(volumes, folder):
    with (folder / "big.safetensors").open("wb") as big:
        big.truncate(MAX_FILE_BYTES + 1)
    assert refused(volumes).what == f"{FOLDER}/big.safetensors is too large for a file of a model"
    (folder / "big.safetensors").unlink()
    strange = folder / os.fsdecode(b"model-\xff.safetensors")
    strange.touch()
    assert "not UTF-8" in refused(volumes).what
    strange.unlink()
    for number in range(MAX_FILES):
        (folder / f"part-{number}").touch()
    assert refused(volumes).what == f"{FOLDER} holds too many files for one model"


@pytest.mark.parametrize("mounted", ["", "others=/mnt/source"])
def test_a_process_that_does_not_mount_the_claim_says_which_does(mounted):
    refusal = refused(VolumeFolders(mounted))

    assert refusal.what == f"{FOLDER} is on a volume that is not mounted here"
    assert "slipway plan NAME" in refusal.remedy


def test_a_run_names_no_revision_of_a_volume():
    request = PlanRequest(spec=spec(source={"uri": FOLDER}), run="run-1", revision="v2")

    with pytest.raises(InputError, match="has no revisions"):
        _ = request.release_spec


def test_only_the_files_of_a_release_are_taken(volumes, folder):
    (folder / "original").mkdir()
    (folder / "original" / "model.safetensors").write_bytes(b"x")
    (folder / "pytorch_model.bin").write_bytes(b"x")

    assert {file.path for file in files_of_release(volumes.resolve(FOLDER, "")).files} == set(FILES)


def test_a_folder_that_is_copied_in_part_is_refused_by_the_first_file_that_its_sums_name(volumes, folder):
    more = sums_of({**FILES, "model-2.safetensors": b"", "tokenizer.model": b"", "original/params.json": b""})
    (folder / "SHA256SUMS").write_bytes(more)

    error = refused(volumes)

    assert error.what == f"{FOLDER} lacks 2 files that its SHA256SUMS names"
    assert error.found == "no 'model-2.safetensors'"
    for path in ("model-2.safetensors", "tokenizer.model"):
        (folder / path).write_bytes(b"")
    assert volumes.resolve(FOLDER, "").files
