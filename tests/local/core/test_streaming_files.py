"""Files of several parts: from a Hub to S3 without a disk, and from S3 to a disk."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from slipway.tasks.adapters.hub.hub import HuggingFaceHub
from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.adapters.store.parts import PART_BYTES
from slipway.tasks.contracts.errors import DigestMismatchError, InputError
from slipway.tasks.contracts.stored.artifact import Layout
from tests.fakes.clock import ManualClock
from tests.local.core.servers import connected
from tests.local.core.test_hostile_hubs import SHA, serving, whole
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.waiting import PATIENCE_S

DATA = hashlib.shake_128(b"weights").digest(2 * PART_BYTES + 12_345)
DIGEST = hashlib.sha256(DATA).hexdigest()
KEY = "a" * 64
LONGEST_S = 60


@pytest.fixture
def store(place):
    return connected(place)


class FileServer:
    """Serves DATA as the only file of a model; `changed` may change what a request gets."""

    def __init__(self, ranges=True, changed=lambda data, request: data):
        self.ranges, self.changed, self.requested = ranges, changed, []

    def __call__(self, handler):
        if "/api/" in handler.path:
            lfs = {"sha256": DIGEST, "size": len(DATA), "pointerSize": 1}
            file = {"rfilename": "model.safetensors", "size": len(DATA), "blobId": "a" * 40, "lfs": lfs}
            info = {"id": "acme/model", "sha": SHA, "gated": False, "siblings": [file]}
            whole(json.dumps(info).encode(), Content_Type="application/json")(handler)
            return
        asked = handler.headers.get("Range") if self.ranges else None
        self.requested.append(asked)
        first, last = (int(text) for text in asked.removeprefix("bytes=").split("-")) if asked else (0, len(DATA) - 1)
        data = self.changed(DATA[first : last + 1], len(self.requested))
        whole(data, 206 if asked else 200)(handler)


def stored_from(server, store, uri):
    """Store what the server has; the digest."""
    with serving(server) as (address, _):
        hub = HuggingFaceHub(address, None, ManualClock(), stall_s=PATIENCE_S)
        source = hub.resolve("acme/model", "main")
        return hub.bring(source, source.files[0], lambda remote: store.put_stream(remote, uri), lambda _: None)


def wrong(data, _):
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_file_is_stored_in_parts_from_several_connections(store, place, caplog):
    server = FileServer()

    digest = stored_from(server, store, f"{place.root}/file")

    assert "ignores ranges" not in caplog.text
    assert digest == DIGEST == store.describe(f"{place.root}/file").sha256
    assert store.read_bytes(f"{place.root}/file") == DATA
    assert len(server.requested) == 3
    assert list(store.uploads(f"{place.root}/")) == []


def test_a_server_that_ignores_ranges_is_read_over_one_connection_and_the_log_says_so(store, place, caplog):
    server = FileServer(ranges=False)

    stored_from(server, store, f"{place.root}/file")

    assert store.read_bytes(f"{place.root}/file") == DATA
    assert len(server.requested) == 1
    said = [line.getMessage() for line in caplog.records if line.name == "slipway.tasks.adapters.hub.hub_download"]
    assert said == [f"acme/model@{SHA[:12]} model.safetensors: the server ignores ranges, reading over one connection"]


def test_a_server_that_ignores_ranges_and_breaks_off_is_read_again(store, place):
    server = FileServer(ranges=False, changed=lambda data, request: data[: PART_BYTES + 5] if request == 1 else data)

    stored_from(server, store, f"{place.root}/file")

    assert store.read_bytes(f"{place.root}/file") == DATA


def test_a_part_that_breaks_off_continues_where_it_ended(store, place):
    server = FileServer(changed=lambda data, request: data[:10_000] if request == 2 else data)

    stored_from(server, store, f"{place.root}/file")

    assert store.read_bytes(f"{place.root}/file") == DATA
    assert len(server.requested) == 4


def test_bytes_that_are_wrong_once_are_read_again(store, place):
    server = FileServer(changed=lambda data, request: wrong(data, request) if request == 2 else data)

    stored_from(server, store, f"{place.root}/file")

    assert store.read_bytes(f"{place.root}/file") == DATA


def test_bytes_that_stay_wrong_leave_no_object_and_no_upload(store, place):
    with pytest.raises(DigestMismatchError):
        stored_from(FileServer(changed=wrong), store, f"{place.root}/file")

    assert store.describe(f"{place.root}/file") is None
    assert list(store.uploads(f"{place.root}/")) == []


def test_a_part_longer_than_requested_is_refused(store, place):
    with pytest.raises(InputError) as caught:
        stored_from(FileServer(changed=lambda data, _: data + b"x"), store, f"{place.root}/file")

    assert "more bytes" in caught.value.what
    assert store.describe(f"{place.root}/file") is None


@pytest.fixture
def artifact(store, place, tmp_path):
    """An artifact with one file of several parts; its store and the file's address."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "engine").write_bytes(DATA)
    artifacts = ArtifactStore(store, Layout(place.root), ManualClock())
    artifacts.store("build", KEY, tmp_path / "made", inputs={}, producer={}, metrics={}, seconds=1)
    return artifacts, f"{place.root}/artifacts/build/{KEY}/engine"


def test_a_download_that_was_killed_continues(store, place, tmp_path):
    data = b"".join(bytes([number]) * PART_BYTES for number in range(1, 13))  # more than may arrive at a time
    uri, partial = f"{place.root}/large", tmp_path / "large"
    store.put_bytes(uri, data)
    slow = place.model_copy(update={"transfer": place.transfer.model_copy(update={"bytes_per_s": 2**20})})
    code = (
        "import sys, pathlib; from slipway.tasks.adapters.store.s3 import S3ObjectStore; from slipway.tasks.contracts.site.site import *;"
        "S3ObjectStore(ObjectStoreSite.model_validate_json(sys.argv[1])).get_file("
        "sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4]))"
    )
    command = [sys.executable, "-c", code, slow.model_dump_json(), uri, str(partial), str(len(data))]
    process = subprocess.Popen(command, cwd=REPOSITORY, env=os.environ)
    deadline = time.monotonic() + LONGEST_S
    while not (partial.exists() and partial.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    left = partial.read_bytes()
    assert 0 < len(left) < len(data)
    assert left == data[: len(left)]
    store.put_bytes(uri, bytes(len(left)) + data[len(left) :])  # its beginning must not be needed again

    assert store.get_file(uri, partial, len(data)) == hashlib.sha256(data).hexdigest()
    assert partial.read_bytes() == data


@pytest.mark.parametrize("size_bytes", [0, 5, PART_BYTES, len(DATA)])
def test_a_download_that_was_killed_after_its_last_byte_is_complete(store, place, tmp_path, size_bytes):
    data, partial = DATA[:size_bytes], tmp_path / "file"
    store.put_bytes(f"{place.root}/file", data)
    partial.write_bytes(data)

    assert store.get_file(f"{place.root}/file", partial, size_bytes) == hashlib.sha256(data).hexdigest()
    assert partial.read_bytes() == data


def test_what_a_killed_download_left_is_not_believed(artifact, tmp_path):
    artifacts, _ = artifact
    (tmp_path / ".engine.partial").write_bytes(bytes(1000))

    artifacts.fetch("build", KEY, tmp_path)

    assert (tmp_path / "engine").read_bytes() == DATA
    assert not (tmp_path / ".engine.partial").exists()


@pytest.mark.parametrize("size_bytes", [0, 5, PART_BYTES, len(DATA) - 1, len(DATA) + 1])
def test_an_object_of_another_size_is_refused_and_not_left_behind(artifact, store, tmp_path, size_bytes):
    artifacts, uri = artifact
    store.put_bytes(uri, (DATA + b"more")[:size_bytes])

    with pytest.raises(DigestMismatchError) as caught:
        artifacts.fetch("build", KEY, tmp_path / "back")

    assert "another size" in str(caught.value)
    assert list((tmp_path / "back").iterdir()) == []


def test_changed_bytes_in_a_later_part_are_refused(artifact, store, tmp_path):
    artifacts, uri = artifact
    store.put_bytes(uri, wrong(DATA, 0))

    with pytest.raises(DigestMismatchError):
        artifacts.fetch("build", KEY, tmp_path / "back")

    assert list((tmp_path / "back").iterdir()) == []


def test_a_full_disk_says_so(artifact, tmp_path):
    artifacts, _ = artifact
    (tmp_path / ".engine.partial").symlink_to("/dev/full")

    with pytest.raises(InputError) as caught:
        artifacts.fetch("build", KEY, tmp_path)

    assert "the disk is full" in caught.value.what
    assert "scratch of the pod's shape" in caught.value.remedy


def test_a_name_that_no_file_system_takes_is_wrong_input(store, place, tmp_path):
    artifacts = ArtifactStore(store, Layout(place.root), ManualClock())
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "engine").write_bytes(b"1")
    manifest = artifacts.store("build", KEY, tmp_path / "made", inputs={}, producer={}, metrics={}, seconds=1)
    long = manifest.files[0].model_copy(update={"path": "n" * 300})
    store.put_bytes(f"{place.root}/artifacts/build/{KEY}/{long.path}", b"1")
    document = manifest.model_copy(update={"files": (long,)}).model_dump_json()
    store.put_bytes(f"{place.root}/artifacts/build/{KEY}/manifest.json", document.encode())

    with pytest.raises(InputError) as caught:
        artifacts.fetch("build", KEY, tmp_path / "back")

    assert caught.value.found == "300 characters"


def test_a_file_larger_than_an_object_can_be_is_refused_before_a_byte_is_asked_for(store, place):
    server, uri = FileServer(), f"{place.root}/huge"
    with serving(server) as (address, _):
        hub = HuggingFaceHub(address, None, ManualClock(), stall_s=PATIENCE_S)
        source = hub.resolve("acme/model", "main")
        huge = source.files[0].model_copy(update={"size_bytes": 5 * 2**40 + 1})
        with refused(what="would be larger than an object in S3 can be", remedy="in several files"):
            hub.bring(source, huge, lambda remote: store.put_stream(remote, uri), lambda _: None)

    assert server.requested == []
    assert not store.exists(uri)
