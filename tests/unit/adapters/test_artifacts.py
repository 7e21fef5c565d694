import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from blake3 import blake3

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.store.artifacts import ArtifactStore, Incoming
from slipway.tasks.contracts.errors import DigestMismatchError, InputError, UnavailableError
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.plan import HubFile
from tests.fakes.clock import ManualClock
from tests.fakes.hub import MemoryFile
from tests.fakes.store.object_store import MemoryObjectStore

KEY, OTHER = "a" * 64, "b" * 64
PREFIX = f"s3://bucket/artifacts/build/{KEY}"


@pytest.fixture
def objects():
    return MemoryObjectStore()


@pytest.fixture
def artifacts(objects):
    return ArtifactStore(objects, Layout("s3://bucket"), ManualClock())


@pytest.fixture
def folder(tmp_path):
    """Write files, given by path, into a new folder."""

    def write(name="made", **files):
        made = tmp_path / name
        for path, data in files.items():
            file = made / path.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return made

    return write


def store(artifacts, source, *, stage="build", key=KEY):
    return artifacts.store(
        stage, key, source, inputs={"quantize": OTHER}, producer={"tool": "1"}, metrics={}, seconds=1
    )


def test_a_stored_artifact_comes_back_whole(artifacts, folder, tmp_path):
    stored = store(artifacts, folder(model=b"weights", sub__config=b"{}"))

    fetched = artifacts.fetch("build", KEY, tmp_path / "back")

    assert fetched == stored == artifacts.find("build", KEY)
    assert (tmp_path / "back" / "model").read_bytes() == b"weights"
    assert (tmp_path / "back" / "sub" / "config").read_bytes() == b"{}"
    assert (stored.inputs, stored.producer, stored.size_bytes) == ({"quantize": OTHER}, {"tool": "1"}, 9)


def test_the_manifest_is_written_last(artifacts, objects, folder):
    store(artifacts, folder(a=b"1", b=b"22", c=b"333"))

    claim, *files, manifest = objects.written
    assert claim == manifest == f"{PREFIX}/manifest.json"
    assert sorted(files) == [f"{PREFIX}/a", f"{PREFIX}/b", f"{PREFIX}/c"]


def test_a_store_that_breaks_halfway_makes_no_artifact(artifacts, objects, folder):
    objects.unavailable = {"/b"}

    with pytest.raises(UnavailableError):
        store(artifacts, folder(a=b"1", b=b"22"))

    assert artifacts.find("build", KEY) is None


def test_the_next_try_keeps_the_files_that_are_right(artifacts, objects, folder):
    source = folder(a=b"1", b=b"22")
    store(artifacts, source)
    objects.delete([f"{PREFIX}/manifest.json"])
    objects.put_bytes(f"{PREFIX}/b", b"cut")
    objects.written.clear()

    store(artifacts, source)

    assert objects.written == [f"{PREFIX}/manifest.json", f"{PREFIX}/b", f"{PREFIX}/manifest.json"]


def test_an_artifact_that_is_being_written_does_not_exist_yet(artifacts, objects, folder, tmp_path):
    objects.unavailable = {"/b"}
    with pytest.raises(UnavailableError):
        store(artifacts, folder(a=b"1", b=b"22"))

    assert objects.exists(f"{PREFIX}/manifest.json")
    assert artifacts.find("build", KEY) is artifacts.use("build", KEY) is None
    with pytest.raises(InputError) as caught:
        artifacts.fetch("build", KEY, tmp_path / "back")
    assert caught.value.what.endswith("does not exist")


def test_a_use_is_recorded_and_changes_what_retention_has_to_find(artifacts, objects, folder):
    stored = store(artifacts, folder(model=b"weights"))
    before = objects.describe(f"{PREFIX}/manifest.json").etag

    used = artifacts.use("build", KEY)

    assert used == artifacts.find("build", KEY) == stored.model_copy(update={"used_at": used.used_at})
    assert used.used_at is not None
    assert objects.describe(f"{PREFIX}/manifest.json").etag != before


def test_many_that_use_an_artifact_at_once_all_find_it(objects, folder):
    clock = SystemClock()
    store(ArtifactStore(objects, Layout("s3://bucket"), clock), folder(model=b"weights"))

    with ThreadPoolExecutor(16) as pool:
        used = list(
            pool.map(lambda _: ArtifactStore(objects, Layout("s3://bucket"), clock).use("build", KEY), range(64))
        )

    assert None not in used


@pytest.mark.parametrize("name", ["with space", "umläut", "hash#", "plus+"])
def test_a_name_that_triton_cannot_address_is_refused_before_any_upload(artifacts, objects, folder, name):
    with pytest.raises(InputError) as caught:
        store(artifacts, folder(good=b"1", **{name: b"2"}))

    assert f"file {name!r} of an artifact" in caught.value.what
    assert objects.written == []


def test_a_stage_without_files_makes_no_artifact(artifacts, tmp_path):
    with pytest.raises(InputError) as caught:
        store(artifacts, tmp_path)

    assert caught.value.expected == "at least one"


def test_a_stage_may_not_make_a_file_that_is_named_as_the_manifest(artifacts, folder):
    with pytest.raises(InputError) as caught:
        store(artifacts, folder(**{"manifest.json": b"{}"}))

    assert caught.value.remedy == "Rename the file."


def test_an_absent_artifact_is_an_input_error_that_says_what_to_run(artifacts, tmp_path):
    with pytest.raises(InputError) as caught:
        artifacts.fetch("build", KEY, tmp_path)

    assert caught.value.expected == f"{PREFIX}/manifest.json"
    assert caught.value.remedy.startswith("Run build first")


def test_stored_bytes_that_changed_are_noticed_and_not_left_behind(artifacts, objects, folder, tmp_path):
    store(artifacts, folder(model=b"weights", config=b"{}"))
    objects.put_bytes(f"{PREFIX}/model", b"wEights")

    with pytest.raises(DigestMismatchError) as caught:
        artifacts.fetch("build", KEY, tmp_path / "back")

    assert f"{PREFIX}/model" in caught.value.what
    assert f"delete it and {PREFIX}/manifest.json" in caught.value.remedy
    left = {path.name for path in (tmp_path / "back").iterdir()}
    assert left <= {"config", ".config.partial"}  # the other file, whose download may have been broken off


def test_a_file_that_is_gone_is_a_damaged_artifact(artifacts, objects, folder, tmp_path):
    store(artifacts, folder(model=b"weights"))
    objects.delete([f"{PREFIX}/model"])

    with pytest.raises(InputError) as caught:
        artifacts.fetch("build", KEY, tmp_path / "back")

    assert f"{PREFIX}/model" in caught.value.what
    assert f"delete it and {PREFIX}/manifest.json" in caught.value.remedy


def test_a_damaged_file_is_replaced_once_it_and_the_manifest_are_deleted(artifacts, objects, folder, tmp_path):
    made = folder(model=b"weights")
    store(artifacts, made)
    _, sha256_in_metadata = objects.objects[f"{PREFIX}/model"]
    objects.objects[f"{PREFIX}/model"] = (b"wEights", sha256_in_metadata)
    objects.delete([f"{PREFIX}/manifest.json"])
    store(artifacts, made)
    with pytest.raises(DigestMismatchError):
        artifacts.fetch("build", KEY, tmp_path / "damaged")

    objects.delete([f"{PREFIX}/model", f"{PREFIX}/manifest.json"])
    store(artifacts, made)

    artifacts.fetch("build", KEY, tmp_path / "back")
    assert (tmp_path / "back" / "model").read_bytes() == b"weights"


def test_fetching_again_reads_only_what_is_not_right_already(artifacts, objects, folder, tmp_path):
    store(artifacts, folder(good=b"1", wrong=b"22"))
    artifacts.fetch("build", KEY, tmp_path / "back")
    (tmp_path / "back" / "wrong").write_bytes(b"xx")
    objects.delete([f"{PREFIX}/good"])

    artifacts.fetch("build", KEY, tmp_path / "back")

    assert (tmp_path / "back" / "wrong").read_bytes() == b"22"


def test_a_single_file_comes_alone(artifacts, folder, tmp_path):
    store(artifacts, folder(model=b"weights", description=b"{}"))

    manifest = artifacts.fetch("build", KEY, tmp_path / "back", only="description")

    assert [path.name for path in (tmp_path / "back").iterdir()] == ["description"]
    assert {file.path for file in manifest.files} == {"model", "description"}


def test_two_processes_that_made_the_same_agree(artifacts, objects, folder):
    class Racing(MemoryObjectStore):
        """Another process stores the manifest just before ours is written."""

        def put_if(self, uri, data, *, etag):
            if uri not in self.objects:
                self.objects[uri] = (first.model_dump_json().encode(), None)
            return super().put_if(uri, data, etag=etag)

    first = store(artifacts, folder(model=b"same"))
    second = store(ArtifactStore(Racing(), Layout("s3://bucket"), ManualClock()), folder(model=b"same"))

    assert second == first.model_copy(update={"used_at": second.used_at})


def test_of_two_processes_that_made_different_bytes_the_last_one_leaves_a_whole_artifact(objects, folder, tmp_path):
    mine, theirs = folder("mine", a=b"mine", b=b"mine too"), folder("theirs", a=b"theirs", b=b"theirs too")

    class Racing(MemoryObjectStore):
        """When ours is about to be committed, another process commits and has overwritten one of our files."""

        def put_if(self, uri, data, *, etag):
            if not self.exists(uri):
                other = ArtifactStore(objects, Layout("s3://bucket"), ManualClock())
                store(other, theirs)
                for name in ("a", "manifest.json"):
                    self.objects[f"{PREFIX}/{name}"] = objects.objects[f"{PREFIX}/{name}"]
            return super().put_if(uri, data, etag=etag)

    artifacts = ArtifactStore(Racing(), Layout("s3://bucket"), ManualClock())
    store(artifacts, mine)

    artifacts.fetch("build", KEY, tmp_path / "back")
    assert {path.name: path.read_bytes() for path in (tmp_path / "back").iterdir()} == {"a": b"mine", "b": b"mine too"}


def test_a_composed_artifact_holds_each_part_under_its_folder(artifacts, objects, folder, tmp_path):
    rendered = store(artifacts, folder("r", **{"demo__config.pbtxt": b"name"}), stage="assemble", key=OTHER)
    engine = store(artifacts, folder("e", model=b"weights"))
    objects.written.clear()

    composed = artifacts.compose(
        "publish", KEY, [(rendered, ""), (engine, "demo/1/engine")], inputs={}, producer={}, metrics={}
    )

    assert [file.path for file in composed.files] == ["demo/1/engine/model", "demo/config.pbtxt"]
    assert objects.written[-1].endswith("manifest.json")
    artifacts.fetch("publish", KEY, tmp_path / "back")
    assert (tmp_path / "back/demo/1/engine/model").read_bytes() == b"weights"


def test_parts_that_share_a_name_are_refused(artifacts, folder):
    part = store(artifacts, folder(model=b"1"))

    with pytest.raises(InputError) as caught:
        artifacts.compose("publish", KEY, [(part, ""), (part, "")], inputs={}, producer={}, metrics={})

    assert caught.value.what.endswith("both have model")


def test_a_part_of_another_size_is_noticed(artifacts, objects, folder):
    part = store(artifacts, folder(model=b"weights"))
    objects.put_bytes(f"{PREFIX}/model", b"cut")

    with pytest.raises(DigestMismatchError):
        artifacts.compose("publish", KEY, [(part, "")], inputs={}, producer={}, metrics={})

    assert artifacts.find("publish", KEY) is None


def test_a_part_of_other_bytes_is_noticed(artifacts, objects, folder, tmp_path):
    part = store(artifacts, folder(model=b"weights"))
    (tmp_path / "other").write_bytes(b"WEIGHTS")
    objects.put_file(tmp_path / "other", f"{PREFIX}/model", sha256=hashlib.sha256(b"WEIGHTS").hexdigest())

    with pytest.raises(DigestMismatchError) as caught:
        artifacts.compose("publish", KEY, [(part, "")], inputs={}, producer={}, metrics={})

    assert f"{PREFIX}/model" in str(caught.value)
    assert artifacts.find("publish", KEY) is None
    assert not list(objects.list("s3://bucket/artifacts/publish/"))[1:]  # but the claim


def test_digests_of_a_manifest_are_those_of_the_files(artifacts, folder):
    stored = store(artifacts, folder(model=b"weights"))

    assert stored.files[0].sha256 == hashlib.sha256(b"weights").hexdigest()


def change(objects, edit):
    """Change what the manifest says of the artifact's one file."""
    document = json.loads(objects.read_bytes(f"{PREFIX}/manifest.json"))
    edit(document["files"][0])
    objects.put_bytes(f"{PREFIX}/manifest.json", json.dumps(document).encode())


def test_both_digests_of_a_stored_file_are_those_of_its_bytes(artifacts, folder):
    (file,) = store(artifacts, folder(model=b"weights" * 100_000)).files

    assert file.sha256 == hashlib.sha256(b"weights" * 100_000).hexdigest()
    assert file.blake3 == blake3(b"weights" * 100_000).hexdigest()


def test_files_are_verified_by_blake3_where_the_manifest_has_it(artifacts, objects, folder, tmp_path):
    store(artifacts, folder(model=b"weights"))
    change(objects, lambda file: file.update(blake3="0" * 64))

    with pytest.raises(DigestMismatchError) as caught:
        artifacts.fetch("build", KEY, tmp_path / "back")

    assert caught.value.expected == f"blake3:{'0' * 12}"
    assert caught.value.found == f"blake3:{blake3(b'weights').hexdigest()[:12]}"


def test_manifests_of_before_are_verified_by_sha256(artifacts, objects, folder, tmp_path):
    store(artifacts, folder(model=b"weights"))
    change(objects, lambda file: file.pop("blake3"))

    artifacts.fetch("build", KEY, tmp_path / "back")
    objects.put_bytes(f"{PREFIX}/model", b"Weights")

    with pytest.raises(DigestMismatchError) as caught:
        artifacts.fetch("build", KEY, tmp_path / "again")
    assert caught.value.expected == f"sha256:{hashlib.sha256(b'weights').hexdigest()[:12]}"


def incoming(data, brought):
    """A file that lies elsewhere and has this content; `brought` counts how often it is read."""

    def bring(take, count):
        brought.append(data)
        taken = take(MemoryFile(data, announced))
        count(len(data))
        return taken

    digest = hashlib.sha256(data).hexdigest()
    announced = HubFile(path="model", digest=f"sha256:{digest}", size_bytes=len(data))
    return [Incoming("model", len(data), digest, bring)]


def stream(artifacts, files, key=KEY):
    return artifacts.stream("download", key, files, what="download", inputs={}, producer={}, metrics={})


def test_a_streamed_file_has_both_digests(artifacts):
    (file,) = stream(artifacts, incoming(b"weights", [])).files

    assert (file.sha256, file.blake3) == (hashlib.sha256(b"weights").hexdigest(), blake3(b"weights").hexdigest())


def test_a_file_that_is_copied_from_another_artifact_keeps_its_digests(artifacts):
    brought = []
    (first,) = stream(artifacts, incoming(b"weights", brought)).files

    (second,) = stream(artifacts, incoming(b"weights", brought), key=OTHER).files

    assert second == first
    assert brought == [b"weights"]


def test_a_file_that_is_written_again_as_it_is_copied_comes_from_elsewhere():
    class Rewriting(MemoryObjectStore):
        """Another process writes the file between the look at it and the copy."""

        def copy(self, source, target_uri):
            self._write(source.uri, b"WEIGHTS")
            super().copy(source, target_uri)

    artifacts, brought = ArtifactStore(Rewriting(), Layout("s3://bucket"), ManualClock()), []
    (first,) = stream(artifacts, incoming(b"weights", brought)).files

    (second,) = stream(artifacts, incoming(b"weights", brought), key=OTHER).files

    assert second == first
    assert brought == [b"weights", b"weights"]


@pytest.mark.parametrize("damaged", [b"", b"{", b'{"apiVersion": "slipway/v9"}', b"[]"])
def test_a_manifest_that_cannot_be_read_stops_no_other_download(artifacts, objects, damaged):
    stream(artifacts, incoming(b"weights", []), key=OTHER)
    objects.put_bytes(f"s3://bucket/artifacts/download/{OTHER}/manifest.json", damaged)
    brought = []

    stream(artifacts, incoming(b"weights", brought))

    assert brought == [b"weights"]


def test_two_processes_agree_though_one_of_them_knows_one_digest_alone(folder):
    class Racing(MemoryObjectStore):
        """Another process, which found the file stored and did not read it, stores the manifest before ours."""

        def put_if(self, uri, data, *, etag):
            if uri not in self.objects:
                self.objects[uri] = (first.model_dump_json().encode(), None)
            return super().put_if(uri, data, etag=etag)

    whole = store(ArtifactStore(MemoryObjectStore(), Layout("s3://bucket"), ManualClock()), folder(model=b"same"))
    first = whole.model_copy(update={"files": (whole.files[0].model_copy(update={"blake3": None}),)})

    second = store(ArtifactStore(Racing(), Layout("s3://bucket"), ManualClock()), folder(model=b"same"))

    assert second == first.model_copy(update={"used_at": second.used_at})
