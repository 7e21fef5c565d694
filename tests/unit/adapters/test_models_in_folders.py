"""Models in a folder of an object store: what is pinned, what is read, and what is refused by name."""

import hashlib

import pytest

from slipway.tasks.adapters.hub.folder_files import MAX_FILE_BYTES, MAX_FILES
from slipway.tasks.adapters.hub.folders import ObjectStoreFolders
from slipway.tasks.adapters.hub.reading import in_memory
from slipway.tasks.adapters.store.object_store import DeniedError, StoredObject
from slipway.tasks.contracts.errors import DigestMismatchError, InputError
from slipway.tasks.contracts.site.store_access import ACCOUNTS
from slipway.tasks.contracts.stored.artifact import FOLDERS, Layout
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.engines.preflight.sources import files_of_release
from tests.fakes.releases import spec
from tests.fakes.store.object_store import MemoryObjectStore

FOLDER = "s3://models/acme/demo"
LAYOUT = Layout("s3://slipway/team-a")
FILES = {"config.json": b'{"model_type": "llama"}', "model.safetensors": bytes(range(256)), "tokenizer.json": b"{}"}


def folders_of(files):
    store = MemoryObjectStore()
    for path, data in files.items():
        store.put_bytes(f"{FOLDER}/{path}", data)
    return store, ObjectStoreFolders(store, LAYOUT)


def sums_of(files):
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in files.items()).encode()


def brought(folders, source, path):
    file = next(file for file in source.files if file.path == path)
    return folders.bring(source, file, in_memory, lambda _: None)


@pytest.fixture(params=["etags", "sums"])
def uploaded(request):
    """A folder whose files are pinned by ETags, and one whose files are pinned by SHA256SUMS."""
    more = {"SHA256SUMS": sums_of(FILES)} if request.param == "sums" else {}
    return folders_of({**FILES, **more})


def test_every_file_is_pinned_and_comes_as_it_was(uploaded):
    _, folders = uploaded

    source = folders.resolve(FOLDER, "")

    assert source.name == FOLDER
    assert {path: brought(folders, source, path) for path in FILES} == FILES
    assert folders.read_file(source, "config.json") == FILES["config.json"]


def test_the_digests_of_sha256sums_are_those_that_the_hub_announces_for_weights():
    _, folders = folders_of({**FILES, "SHA256SUMS": sums_of(FILES)})

    digests = {file.path: file.digest for file in folders.resolve(FOLDER, "").files}

    assert digests["model.safetensors"] == f"sha256:{hashlib.sha256(FILES['model.safetensors']).hexdigest()}"


@pytest.mark.parametrize("change", [b"\0" * 256, b"shorter", None])
def test_an_object_that_changed_since_plan_is_refused_by_name(uploaded, change):
    store, folders = uploaded
    source, uri = folders.resolve(FOLDER, ""), f"{FOLDER}/model.safetensors"
    if change is None:
        store.delete([uri])
    else:
        store.put_bytes(uri, change)

    with pytest.raises((InputError, DigestMismatchError)) as caught:
        brought(folders, source, "model.safetensors")

    assert uri in caught.value.what


def test_the_commit_is_another_once_any_object_is(uploaded):
    store, folders = uploaded
    before = folders.resolve(FOLDER, "").commit
    assert folders.resolve(FOLDER, "").commit == before

    store.put_bytes(f"{FOLDER}/tokenizer.json", b"[]")

    assert folders.resolve(FOLDER, "").commit != before


def test_a_folder_beside_it_and_the_consoles_marker_are_not_part_of_it():
    store, folders = folders_of({**FILES, "": b"", "original/": b""})
    store.put_bytes(f"{FOLDER}-2/config.json", b"{}")

    assert {file.path for file in folders.resolve(FOLDER, "").files} == set(FILES)


@pytest.mark.parametrize("path", ["../config.json", "a/../../x", "/etc/passwd", "./config.json", "a//b", "..", "a/"])
def test_a_name_that_is_not_a_path_is_refused_by_name(path):
    _, folders = folders_of({**FILES, path: b"x"})

    with pytest.raises(InputError) as caught:
        folders.resolve(FOLDER, "")

    assert path in caught.value.found


class HostileStore(MemoryObjectStore):
    """Lists what no fake could hold, and says how much of it was read."""

    def __init__(self, listed):
        super().__init__()
        self.listed, self.given = listed, 0

    def list(self, prefix_uri):
        for path, size_bytes, etag in self.listed:
            self.given += 1
            yield StoredObject(f"{prefix_uri}{path}", size_bytes, etag, self._now())


def test_a_folder_of_100_000_objects_is_refused_after_a_thousand():
    store = HostileStore((f"part-{number}", 1, '"e"') for number in range(100_000))

    with pytest.raises(InputError) as caught:
        ObjectStoreFolders(store, LAYOUT).resolve(FOLDER, "")

    assert FOLDER in caught.value.what
    assert store.given == MAX_FILES + 1


@pytest.mark.parametrize(
    "listed",
    [
        ("model.safetensors", 5 * 2**40, '"e"'),
        ("model.safetensors", MAX_FILE_BYTES + 1, '"e"'),
        ("model.safetensors", 1, '"a\r\nb"'),
        ("model.safetensors", 1, ""),
        ("SHA256SUMS", 2**40, '"e"'),
    ],
)
def test_an_object_beyond_the_bounds_is_refused_by_name(listed):
    with pytest.raises(InputError) as caught:
        ObjectStoreFolders(HostileStore([listed]), LAYOUT).resolve(FOLDER, "")

    assert listed[0] in caught.value.what


@pytest.mark.parametrize(
    "line", [b"no digest", b"a" * 64, b"A" * 64 + b"  a", b"\xff" * 64 + b"  a", b"a" * 64 + b"  "]
)
def test_sums_that_sha256sum_would_not_write_are_refused_by_their_line(line):
    _, folders = folders_of({**FILES, "SHA256SUMS": sums_of(FILES) + line + b"\n"})

    with pytest.raises(InputError) as caught:
        folders.resolve(FOLDER, "")

    assert caught.value.what.startswith(f"{FOLDER}/SHA256SUMS, line 4 ")


def test_a_folder_that_is_copied_in_part_is_refused_by_the_first_file_that_its_sums_name():
    _, folders = folders_of({**FILES, "SHA256SUMS": sums_of({**FILES, "tokenizer.model": b"", "sub/params.json": b""})})

    with pytest.raises(InputError) as caught:
        folders.resolve(FOLDER, "")

    assert caught.value.what == f"{FOLDER} lacks 1 files that its SHA256SUMS names"
    assert caught.value.found == "no 'tokenizer.model'"


def test_sums_that_give_a_file_two_digests_are_refused():
    _, folders = folders_of({**FILES, "SHA256SUMS": sums_of(FILES) + b"a" * 64 + b"  config.json\n"})

    with pytest.raises(InputError) as caught:
        folders.resolve(FOLDER, "")

    assert "config.json" in caught.value.found


@pytest.mark.parametrize("own", sorted(FOLDERS))
def test_no_model_is_read_from_what_slipway_itself_stores(own):
    store, uri = MemoryObjectStore(), f"{LAYOUT.root}/{own}/publish/{'a' * 64}"
    store.put_bytes(f"{uri}/model.safetensors", b"another team's")

    with pytest.raises(InputError) as caught:
        ObjectStoreFolders(store, LAYOUT).resolve(uri, "")

    assert uri in caught.value.what


def test_slipway_stores_below_its_own_folders_alone():
    keys = {key for access in ACCOUNTS.values() for key in (*access.reads, *access.writes, *access.deletes)}

    assert {key.partition("/")[0] for key in keys} - {"*"} == FOLDERS
    assert not LAYOUT.holds("s3://slipway/team-a/models/demo")
    assert not LAYOUT.holds("s3://slipway/artifacts/demo")


def test_a_run_names_no_revision_of_a_folder():
    request = PlanRequest(spec=spec(source={"uri": FOLDER}), run="run-1", revision="v2")

    with pytest.raises(InputError) as caught:
        _ = request.release_spec

    assert FOLDER in caught.value.what
    assert request.model_copy(update={"revision": "main"}).release_spec == request.spec


def test_an_empty_folder_is_refused_by_name():
    with pytest.raises(InputError) as caught:
        folders_of({})[1].resolve(FOLDER, "")

    assert FOLDER in caught.value.what


class DenyingStore(MemoryObjectStore):
    """Lists objects and does not decrypt them, as S3 without kms:Decrypt; or, with `lists` false, neither."""

    lists = True

    def list(self, prefix_uri):
        if not self.lists:
            raise DeniedError(f"s3 rejects the credentials for {prefix_uri}", found="AccessDenied")
        return super().list(prefix_uri)

    def read_into(self, uri, view, **_):
        raise DeniedError(f"s3 rejects the credentials for {uri}", found="AccessDenied")


@pytest.mark.parametrize("lists", [True, False])
def test_a_denial_names_the_object_and_the_permissions(lists):
    store = DenyingStore()
    store.put_bytes(f"{FOLDER}/config.json", b"{}")
    store.lists, folders = lists, ObjectStoreFolders(store, LAYOUT)

    with pytest.raises(InputError) as caught:
        folders.read_file(folders.resolve(FOLDER, ""), "config.json")

    assert FOLDER in caught.value.what
    assert "kms:Decrypt" in caught.value.remedy


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"model.safetensors": b""}, "model.safetensors"),
        ({"model-a.safetensors": b"x", "model-A.safetensors": b"x"}, "model-a.safetensors"),
        ({"pytorch_model.bin": b"x"}, "pytorch_model.bin"),
        ({"model-\u00e9.safetensors": b"x"}, "\u00e9"),
    ],
)
def test_files_that_a_release_cannot_be_made_of_are_refused_by_name(files, named):
    _, folders = folders_of(files)

    with pytest.raises(InputError) as caught:
        files_of_release(folders.resolve(FOLDER, ""))

    assert FOLDER in caught.value.what
    assert named in f"{caught.value.what} {caught.value.found}"


def test_pickles_and_what_lies_deeper_are_not_taken():
    _, folders = folders_of({**FILES, "pytorch_model.bin": b"x", "original/model.safetensors": b"x"})

    assert {file.path for file in files_of_release(folders.resolve(FOLDER, "")).files} == set(FILES)
