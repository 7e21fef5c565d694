"""Models move between object stores and folders: verified, resumable, and never over a channel that differs."""

import pytest

from tasks.adapters.artifacts import ArtifactStore
from tasks.adapters.folder_store import FolderStore
from tasks.adapters.moving import ONLY_SERVED, Move, Place
from tasks.contracts.artifact import STAGES, Layout
from tasks.contracts.channel import Channel
from tasks.contracts.errors import ConflictError, DigestMismatchError, InputError, UnavailableError
from tests.fakes.clock import ManualClock
from tests.fakes.object_store import MemoryObjectStore
from tests.fakes.old_stores import OldStore

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

    assert caught.value.found == f"{old.live.id} is live there"
    assert not target.store.exists(ELSEWHERE.release("demo", old.other.id))
    moved(source, target, replace=True)
    assert target.channel("demo")[0].live.release_id == old.other.id


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
