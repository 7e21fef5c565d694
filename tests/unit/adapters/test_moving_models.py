"""Models move between object stores and folders: verified, resumable, and never over a channel that differs."""

import json
import os
from pathlib import Path

import pytest

from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.adapters.store.folder_store import FolderStore
from slipway.tasks.adapters.store.moving import ONLY_SERVED, Move, Place
from slipway.tasks.adapters.store.object_store import LARGEST_WHOLE_BYTES
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.errors import ConflictError, DigestMismatchError, InputError, UnavailableError
from slipway.tasks.contracts.stored.artifact import STAGES, Layout
from slipway.tasks.contracts.stored.channel import HISTORY_LENGTH, Channel
from slipway.tasks.contracts.stored.plan import DatasetFile, HubFile
from tests.fakes.clock import ManualClock
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.store.old_stores import NOW, OldStore

ELSEWHERE = Layout("s3://elsewhere/backup")


@pytest.fixture
def old(tmp_path):
    """A store with a live and a previous release, and one that no channel names."""
    made = OldStore(tmp_path)
    made.live, made.previous, made.other = (made.release(number, days=5 - number, stages=STAGES) for number in range(3))
    made.channel(made.live, made.previous)
    return made


@pytest.fixture
def source(old):
    return Place(old.store, old.layout)


@pytest.fixture
def target():
    return Place(MemoryObjectStore(), ELSEWHERE)


def moved(source, target, names=("demo",), **options):
    return list(Move(source, target, ManualClock(), **options).run(names))


def check_whole(place, made, tmp_path, stages=STAGES):
    artifacts = ArtifactStore(place.store, place.layout, ManualClock())
    for stage in stages:
        artifacts.fetch(stage, made.plan.stages[stage].key, tmp_path / "whole" / made.id / stage)


def test_a_channel_its_releases_and_their_artifacts_arrive(old, source, target, tmp_path):
    lines = moved(source, target)

    channel, _ = target.channel("demo")
    assert channel.live.release_uri == ELSEWHERE.release("demo", old.live.id)
    assert [entry.release_id for entry in channel.previous] == [old.previous.id]
    for made in (old.live, old.previous):
        check_whole(target, made, tmp_path)
        assert target.store.exists(ELSEWHERE.release("demo", made.id))
        assert target.store.exists(f"{ELSEWHERE.evidence('demo', made.id, made.plan.run)}/gate.json")
    assert not target.store.exists(ELSEWHERE.release("demo", old.other.id))
    assert lines[-1] == f"channel demo: {old.live.id} is live"


def test_there_and_back_again_is_the_same_channel(old, source, tmp_path):
    folder = FolderStore(tmp_path / "backup")
    backup = Place(folder, Layout(folder.root))
    moved(source, backup)
    lost = Place(MemoryObjectStore(), source.layout)

    moved(backup, lost)

    assert lost.channel("demo")[0] == source.channel("demo")[0]
    check_whole(lost, old.live, tmp_path)


def test_a_move_that_was_cut_short_continues(source, target):
    target.store.unavailable = {"/channels/demo.json"}
    with pytest.raises(UnavailableError):
        moved(source, target)
    assert target.channel("demo") is None
    target.store.unavailable = set()

    assert {"5 artifacts were there" in line for line in moved(source, target)[:-1]} == {True}


def test_a_channel_that_differs_is_replaced_only_when_asked(old, source, target):
    moved(source, target)
    old.channel(old.other, old.live)

    with pytest.raises(ConflictError) as caught:
        moved(source, target)

    assert caught.value.found == f"{old.live.id} is live there, at the source {old.other.id}"
    assert not target.store.exists(ELSEWHERE.release("demo", old.other.id))
    moved(source, target, replace="any")
    assert target.channel("demo")[0].live.release_id == old.other.id


@pytest.mark.parametrize("change", ["promotion", "refusal"])
def test_a_back_up_is_brought_up_to_date_and_not_taken_back(old, source, target, change):
    moved(source, target)
    before, etag = source.channel("demo")
    if change == "promotion":
        uri = old.layout.release("demo", old.other.id)
        after = before.promoted(old.other.id, uri, at=NOW, run="run-9", keep=2)
    else:
        after = before.refused(old.other.id, at=NOW, run="run-9", reason="gate")
    old.store.put_if(old.layout.channel("demo"), canonical_json(after.model_dump(mode="json")), etag=etag)

    moved(source, target)

    assert target.channel("demo")[0].history == after.history
    old.store.put_bytes(old.layout.channel("demo"), canonical_json(before.model_dump(mode="json")))
    with pytest.raises(ConflictError):
        moved(source, target)


def test_the_end_of_a_long_history_still_tells_an_earlier_channel():
    def refused(channel, *runs):
        for run in runs:
            channel = channel.refused("demo-000000000001", at=NOW, run=f"run-{run}", reason="")
        return channel

    older = refused(Channel(name="demo"), *range(HISTORY_LENGTH))

    assert older.precedes(refused(older, "new"))
    assert not older.precedes(older)
    assert not refused(older, "here").precedes(refused(older, "there"))
    assert not refused(Channel(name="demo"), 7, 1).precedes(refused(Channel(name="demo"), 1, 2))


def test_a_release_that_was_planned_again_is_renewed_and_an_older_one_only_with_replace(old, source, target):
    """The id stays the same where only what does not make artifacts changed, such as replicas."""

    def stored(place):
        return place.release("demo", old.live.id)[0]

    def planned(at):
        again = old.live.model_copy(update={"created_at": at})
        uri = old.layout.release("demo", old.live.id)
        old.store.put_bytes(uri, canonical_json(again.model_dump(mode="json")))

    moved(source, target)
    planned(NOW)
    moved(source, target)
    assert stored(target) == stored(source)
    planned(old.live.created_at)
    moved(source, target)
    assert stored(target).created_at == NOW
    moved(source, target, replace="any")
    assert stored(target) == stored(source)


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_what_is_damaged_at_the_target_is_copied_again(old, source, target, tmp_path, damage):
    moved(source, target)
    weights = f"{ELSEWHERE.artifact('publish', old.live.plan.stages['publish'].key)}/weights"
    if damage == "cut":
        target.store.put_bytes(weights, b"")
    else:
        target.store.delete([weights])

    assert "1 artifacts copied, 4 artifacts were there" in moved(source, target)[0]
    check_whole(target, old.live, tmp_path)


def test_every_dataset_that_a_plan_stored_moves(old, source, target):
    pinned = old.live.plan.datasets
    files = {
        name: DatasetFile(repo="r", commit="c", file=HubFile(path=name, size_bytes=2, digest=f"etag:{name}"))
        for name in ("calibration", "quality", "perplexity", "load_prompts", "task")
    }
    task = {"task": files.pop("task")}
    pinned = pinned.model_copy(update={**files, "harness_questions": task})
    live = old.live.model_copy(update={"plan": old.live.plan.model_copy(update={"datasets": pinned})})
    old.store.put_bytes(old.layout.release("demo", live.id), canonical_json(live.model_dump(mode="json")))
    for each in pinned.files:
        old.store.put_bytes(old.layout.dataset(each.file.digest), b"[]")

    moved(source, target)

    assert len(pinned.files) == 5
    assert all(target.store.exists(ELSEWHERE.dataset(each.file.digest)) for each in pinned.files)


@pytest.mark.parametrize("damage", [b"x" * 73, b"cut"])
def test_bytes_that_are_not_those_of_the_manifest_stop_the_move_before_the_channel(old, source, target, damage):
    old.store.put_bytes(f"{old.layout.artifact('publish', old.live.plan.stages['publish'].key)}/weights", damage)

    with pytest.raises(DigestMismatchError):
        moved(source, target)

    assert target.channel("demo") is None


def test_only_what_pods_serve_may_be_moved_alone(old, source, target, tmp_path):
    moved(source, target, stages=ONLY_SERVED)

    check_whole(target, old.live, tmp_path, stages=("publish",))
    assert not list(target.store.list(f"{ELSEWHERE.root}/artifacts/download/"))


def test_a_stage_that_was_deleted_does_not_stop_a_move_unless_pods_serve_it(old, source, target):
    for stage in ("download", "publish"):
        key = old.live.plan.stages[stage].key
        old.store.delete([f"{old.layout.artifact(stage, key)}/manifest.json"])
        if stage == "download":
            assert "1 artifacts missing at the source" in moved(source, target)[0]

    with pytest.raises(InputError, match="publish"):
        moved(source, Place(MemoryObjectStore(), ELSEWHERE))


def test_a_model_without_a_channel_is_named_with_those_that_have_one(source, target):
    with pytest.raises(InputError) as caught:
        moved(source, target, names=("nobody",))

    assert caught.value.found == "demo"


def test_a_folder_does_not_take_addresses_outside_of_it(tmp_path):
    store = FolderStore(tmp_path / "backup")

    with pytest.raises(InputError):
        store.put_bytes(f"{store.root}/../elsewhere", b"")


def test_a_document_of_a_folder_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    folder = FolderStore(tmp_path)
    (tmp_path / "channels").mkdir()
    with (tmp_path / "channels" / "demo.json").open("wb") as file:
        file.truncate(LARGEST_WHOLE_BYTES + 1)

    with pytest.raises(InputError) as caught:
        Place(folder, Layout(folder.root)).channel("demo")

    assert caught.value.expected == f"at most {LARGEST_WHOLE_BYTES}"


def test_an_empty_channel_moves_too(source, target):
    source.store.put_bytes(source.layout.channel("new"), Channel(name="new").model_dump_json().encode())

    assert moved(source, target, names=("new",)) == ["channel new: nothing is live"]


def test_signatures_move_with_their_releases(old, source, target):
    signed = old.layout.artifact("publish", old.live.plan.stages["publish"].key)
    for name in ("model.sig", "provenance.sigstore.json"):
        old.store.put_bytes(f"{signed}/{name}", name.encode())

    moved(source, target, stages=ONLY_SERVED)

    folder = ELSEWHERE.artifact("publish", old.live.plan.stages["publish"].key)
    assert target.store.read_bytes(f"{folder}/model.sig") == b"model.sig"
    assert target.store.read_bytes(f"{folder}/provenance.sigstore.json") == b"provenance.sigstore.json"
    assert not target.store.exists(
        f"{ELSEWHERE.artifact('publish', old.previous.plan.stages['publish'].key)}/model.sig"
    )


@pytest.fixture
def backup(source, tmp_path):
    """A folder that a stranger may have changed after the export."""
    folder = FolderStore(tmp_path / "backup")
    place = Place(folder, Layout(folder.root))
    moved(source, place)
    return place


def path_of(uri):
    return Path(uri.removeprefix("file://"))


@pytest.mark.parametrize("odd", ["file", "folder", "above", "fifo"])
def test_links_and_pipes_in_a_folder_are_not_followed(odd, old, backup, target, tmp_path):
    evidence = path_of(backup.layout.evidence("demo", old.live.id, old.live.plan.run))
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "gate.json").write_text("of this machine")
    match odd:
        case "file":
            (evidence / "more.json").symlink_to(secret / "gate.json")
        case "folder":
            (evidence / "gate.json").unlink()
            evidence.rmdir()
            evidence.symlink_to(secret)
        case "above":
            channels = path_of(backup.layout.channels())
            channels.rename(tmp_path / "channels")
            channels.symlink_to(tmp_path / "channels")
        case _:
            os.mkfifo(evidence / "more.json")

    with pytest.raises(InputError, match="is a link, or not a file"):
        moved(backup, target)

    assert not [item for item in target.store.list(ELSEWHERE.root) if b"machine" in target.store.read_bytes(item.uri)]
    assert target.channel("demo") is None


def swap(place, there, own):
    """Put the document of one address at another."""
    place.store.put_bytes(there, place.store.read_bytes(own))


def test_a_document_of_another_address_is_refused(old, source, backup, target):
    layout, live, previous = backup.layout, old.live, old.previous
    documents = {
        layout.release("demo", live.id): layout.release("demo", previous.id),
        f"{layout.artifact('publish', live.plan.stages['publish'].key)}/manifest.json": (
            f"{layout.artifact('publish', previous.plan.stages['publish'].key)}/manifest.json"
        ),
        layout.channel("other"): layout.channel("demo"),
    }
    for there, own in documents.items():
        before = backup.store.read_bytes(there) if backup.store.exists(there) else None
        swap(backup, there, own)

        with pytest.raises(InputError) as caught:
            moved(backup, target, names=("other" if before is None else "demo",))

        assert (caught.value.expected, caught.value.found) == (there, own)
        assert target.channel("demo") is None
        if before is not None:
            backup.store.put_bytes(there, before)


def test_a_release_whose_plan_is_of_another_release_is_refused(old, source, target):
    plan = old.live.plan.model_copy(update={"release_id": old.previous.id})
    changed = old.live.model_copy(update={"plan": plan})
    uri = source.layout.release("demo", old.live.id)
    source.store.put_bytes(uri, canonical_json(changed.model_dump(mode="json")))

    with pytest.raises(InputError) as caught:
        moved(source, target)

    assert caught.value.found == source.layout.release("demo", old.previous.id)


def test_a_channel_names_releases_by_ids_that_are_no_paths(source, target):
    document = json.loads(source.store.read_bytes(source.layout.channel("demo")))
    document["live"]["release_id"] = "../other/release-1"
    source.store.put_bytes(source.layout.channel("demo"), canonical_json(document))

    with pytest.raises(InputError, match=r"live\.release_id"):
        moved(source, target)


def test_the_adapters_of_a_live_release_arrive_with_it(old, source, target):
    old.artifact("adapter", "a" * 64, days=3)
    old.adapters(old.live, ["a" * 64])

    moved(source, target, stages=ONLY_SERVED)

    assert target.store.exists(ELSEWHERE.adapters("demo", old.live.id))
    assert ArtifactStore(target.store, target.layout, ManualClock()).find("adapter", "a" * 64) is not None
