"""No byte of a copy passes through the process that asks for it: everything goes over a wire that counts."""

import contextlib
import socket
import socketserver
import threading
from urllib.parse import urlsplit

import pytest

from slipway.tasks.adapters.store import s3_files
from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.adapters.store.parts import PART_BYTES
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.stored.artifact import Layout
from tests.fakes.clock import ManualClock
from tests.fakes.store.faulty_s3 import FaultyS3
from tests.local.core.servers import connected

DATA = bytes(range(256)) * (3 * PART_BYTES // 256)
BUILT, PUBLISHED = "d" * 64, "e" * 64
SMALL = 200_000  # documents, headers and answers
FILES = 40
FEW = 10  # for the claim, the manifest and what lies there already


class Counting(socketserver.StreamRequestHandler):
    """Passes a connection on to the server's `to`, and counts what goes through in either direction."""

    def handle(self):
        with socket.create_connection(self.server.to) as there:
            asked, answered = bytearray(), bytearray()
            self.server.asked.append(asked)
            self.server.answered.append(answered)
            back = threading.Thread(target=self.pass_on, args=(there, self.connection, answered))
            back.start()
            self.pass_on(self.connection, there, asked)
            back.join()

    def pass_on(self, one, other, passed):
        with contextlib.suppress(ConnectionError):
            while data := one.recv(65536):
                passed += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def counting(place):
    """A way to the place's store, whose server has what was asked and answered, and the place behind it."""
    address = urlsplit(place.endpoint)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Counting) as server:
        server.daemon_threads, server.to = True, (address.hostname, address.port)
        server.asked, server.answered = [], []
        threading.Thread(target=server.serve_forever).start()
        try:
            endpoint = f"{address.scheme}://127.0.0.1:{server.server_address[1]}"
            yield server, place.model_copy(update={"endpoint": endpoint})
        finally:
            server.shutdown()


def bytes_over(wire):
    return sum(map(len, [*wire.asked, *wire.answered]))


def requests_over(wire):
    return sum(asked.count(b" HTTP/1.1\r\n") for asked in wire.asked)


def test_publish_composes_without_a_byte_through_its_pod(place, tmp_path):
    (tmp_path / "rank0.engine").write_bytes(DATA)
    direct = ArtifactStore(connected(place), Layout(place.root), ManualClock())
    built = direct.store("build", BUILT, tmp_path, inputs={}, producer={}, metrics={}, seconds=1)

    with counting(place) as (wire, counted):
        ArtifactStore(S3ObjectStore(counted), Layout(place.root), ManualClock()).compose(
            "publish", PUBLISHED, [(built, "model")], inputs={}, producer={}, metrics={}
        )

    assert 0 < bytes_over(wire) < SMALL
    direct.fetch("publish", PUBLISHED, tmp_path / "back")
    assert (tmp_path / "back" / "model" / "rank0.engine").read_bytes() == DATA


def test_a_file_is_stored_by_one_request_and_copied_by_two(place, tmp_path):
    for number in range(FILES):
        (tmp_path / f"{number}.py").write_text(f"{number}")

    with counting(place) as (storing, counted):
        made = ArtifactStore(S3ObjectStore(counted), Layout(place.root), ManualClock()).store(
            "assemble", BUILT, tmp_path, inputs={}, producer={}, metrics={}, seconds=1
        )
    with counting(place) as (composing, counted):
        ArtifactStore(S3ObjectStore(counted), Layout(place.root), ManualClock()).compose(
            "publish", PUBLISHED, [(made, "")], inputs={}, producer={}, metrics={}
        )

    assert FILES < requests_over(storing) < FILES + FEW
    assert 2 * FILES < requests_over(composing) < 2 * FILES + FEW


def test_the_wire_counts_what_is_read(place):
    connected(place).put_bytes(f"{place.root}/file", DATA)

    with counting(place) as (wire, counted):
        S3ObjectStore(counted).read_bytes(f"{place.root}/file")

    assert bytes_over(wire) > len(DATA)


def test_a_copy_in_parts_is_the_same_and_only_of_what_was_described(place, tmp_path, monkeypatch):
    monkeypatch.setattr(s3_files, "COPY_PART_BYTES", PART_BYTES)
    (tmp_path / "file").write_bytes(DATA)
    store, root = connected(place), place.root
    store.put_file(tmp_path / "file", f"{root}/file", sha256="a" * 64)
    described = store.describe(f"{root}/file")

    store.copy(described, f"{root}/copy")

    assert store.read_bytes(f"{root}/copy") == DATA
    assert store.describe(f"{root}/copy").sha256 == "a" * 64
    store.put_bytes(f"{root}/file", DATA[::-1])
    with pytest.raises(UnavailableError, match="changed at http"):
        store.copy(described, f"{root}/again")
    assert not store.exists(f"{root}/again")


def test_a_source_that_changes_while_it_is_copied_in_parts_is_tried_again(place, monkeypatch):
    monkeypatch.setattr(s3_files, "COPY_PART_BYTES", PART_BYTES)
    connected(place).put_bytes(f"{place.root}/file", DATA)

    with (
        FaultyS3(place.endpoint) as front,
        front.spoiling("status", key="partNumber", status=412, code="PreconditionFailed"),
    ):
        store = S3ObjectStore(place.model_copy(update={"endpoint": front.endpoint}))
        with pytest.raises(UnavailableError, match="changed at http"):
            store.copy(store.describe(f"{place.root}/file"), f"{place.root}/copy")
