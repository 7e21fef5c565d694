"""How S3Files reads objects: which ranges, how many at a time, and what it does about connections that break."""

import contextlib
import hashlib
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace

import pytest
from botocore import exceptions as aws
from botocore.hooks import HierarchicalEmitter
from urllib3.exceptions import SSLError

from slipway.tasks.adapters.store import s3_files
from slipway.tasks.adapters.store.digests import new
from slipway.tasks.adapters.store.parts import PART_BYTES, Lanes, RateLimit
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.adapters.store.s3_files import ATTEMPTS, ONE_CONNECTION_BYTES_PER_S, READ_BYTES, S3Files
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import ObjectStoreSite
from tests.fakes.clock import ManualClock
from tests.fakes.servers.loopback_server import LoopbackServer

ADDRESS = {"Bucket": "b", "Key": "k"}
LONGEST_S = 60.0


class Body:
    """An answer's bytes. `meet` is called before each piece, `broken_after` bytes it raises `error`."""

    def __init__(self, data, meet, error=None, broken_after=None):
        self.data, self.meet, self.error, self.broken_after, self.position = data, meet, error, broken_after, 0

    def readinto(self, view):
        self.meet()
        if self.error and self.position >= self.broken_after:
            raise self.error
        piece = self.data[self.position : self.position + len(view)]
        view[: len(piece)] = piece
        self.position += len(piece)
        return len(piece)

    def close(self):
        self.closed()

    def closed(self):
        pass


class Client:
    """S3's GetObject over one object, as boto3 has it. Keeps the ranges and how many answers were open at a time."""

    def __init__(self, data, meet=lambda start: None, broken=(), breaks_at=0.5):
        self.data, self.meet, self.broken, self.breaks_at = data, meet, list(broken), breaks_at
        self.ranges, self.open, self.most_open, self.lock = [], 0, 0, threading.Lock()
        self.meta = SimpleNamespace(events=HierarchicalEmitter())

    def get_object(self, *, Bucket, Key, Range=None):  # noqa: N803 - boto3's names
        assert {"Bucket": Bucket, "Key": Key} == ADDRESS
        start, end = map(int, Range.removeprefix("bytes=").split("-")) if Range else (0, len(self.data) - 1)
        data = self.data[start : end + 1]
        with self.lock:
            self.ranges.append((start, end + 1))
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            error = self.broken.pop(0) if self.broken else None
        body = Body(data, lambda: self.meet(start), error, int(self.breaks_at * len(data)))
        body.closed = self.one_less
        return {
            "Body": body,
            "ContentLength": len(data),
            "ContentRange": f"bytes {start}-{end}/{len(self.data)}",
        }

    def one_less(self):
        with self.lock:
            self.open -= 1


def slow_beginning(meet=lambda: None):
    """A connection that brings its first MB at less than the rate of one connection that is left alone."""

    def wait(start):
        if start == 0:
            time.sleep(2 * 2**18 / ONE_CONNECTION_BYTES_PER_S)
        else:
            meet()

    return wait


def get(client, path, lanes=None):
    return S3Files(client, lanes or Lanes(), None).get(ADDRESS, path, len(client.data), lambda _: None, new("sha256"))


def data_of(size_bytes):
    return (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]


def test_a_fast_connection_is_left_alone_and_asked_for_longer_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr(s3_files, "ONE_CONNECTION_BYTES_PER_S", 0)  # how fast it is, this machine decides
    client = Client(data_of(40 * PART_BYTES))

    digest = get(client, tmp_path / "f")

    assert client.most_open == 1
    assert [(end - start) // PART_BYTES for start, end in client.ranges] == [1, 2, 4, 8, 8, 8, 8, 1]
    assert digest == hashlib.sha256(client.data).hexdigest()
    assert (tmp_path / "f").read_bytes() == client.data


@pytest.mark.parametrize("connections", [2, 8, 32])
def test_a_slow_connection_is_helped_by_as_many_as_are_allowed(tmp_path, connections):
    together = threading.Barrier(connections)
    waited = set()

    def meet():
        """The first piece of each of the first ranges comes when all of them are being read."""
        me = threading.get_ident()
        if len(waited) < connections and me not in waited:
            waited.add(me)
            together.wait(LONGEST_S)

    client = Client(data_of(20 * PART_BYTES), slow_beginning(meet))

    digest = get(client, tmp_path / "f", Lanes(connections))

    assert client.most_open == connections
    assert digest == hashlib.sha256(client.data).hexdigest()
    assert (tmp_path / "f").read_bytes() == client.data


def test_files_at_a_time_share_the_connections(tmp_path):
    client, lanes = Client(data_of(6 * PART_BYTES), slow_beginning()), Lanes(connections=3)
    threads = [threading.Thread(target=get, args=(client, tmp_path / str(number), lanes)) for number in range(5)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert client.most_open == 3
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {client.data}
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("meet", [lambda _: None, slow_beginning()], ids=["one connection", "several"])
def test_every_byte_that_arrives_counts_against_the_bandwidth(tmp_path, meet):
    client, lanes, clock = Client(data_of(4 * PART_BYTES), meet), Lanes(), ManualClock()
    lanes.limit = RateLimit(PART_BYTES, clock)
    began = clock.monotonic()

    get(client, tmp_path / "f", lanes)

    assert clock.monotonic() - began >= 3.9  # the last piece does not wait for itself


def pieces_of_half(size_bytes):
    """How much has come when a body of this size breaks: the pieces that begin in its first half."""
    return math.ceil(size_bytes / 2 / READ_BYTES) * READ_BYTES


@pytest.mark.parametrize(
    "error",
    [aws.ResponseStreamingError(error="reset"), SSLError("decryption failed or bad record mac")],
    ids=["connection", "tls"],
)
def test_a_range_that_breaks_goes_on_at_its_next_byte(tmp_path, error):
    client = Client(data_of(PART_BYTES), broken=[error, error])

    digest = get(client, tmp_path / "f")

    first = pieces_of_half(PART_BYTES)
    second = first + pieces_of_half(PART_BYTES - first)
    assert [start for start, _ in client.ranges] == [0, first, second]
    assert {end for _, end in client.ranges} == {PART_BYTES}
    assert digest == hashlib.sha256(client.data).hexdigest()


def test_connections_that_bring_nothing_are_given_up_by_an_error_of_the_store(tmp_path):
    client = Client(data_of(PART_BYTES), broken=[SSLError("bad record mac")] * 10, breaks_at=0)

    with pytest.raises(aws.ResponseStreamingError):
        get(client, tmp_path / "f")

    assert client.ranges == [(0, PART_BYTES)] * ATTEMPTS
    assert client.open == 0


@pytest.mark.parametrize("size_bytes", [1, 700, READ_BYTES, PART_BYTES])
def test_a_full_disk_is_told_whatever_the_size_of_the_file(tmp_path, size_bytes):
    (tmp_path / "f").symlink_to("/dev/full")

    with pytest.raises(InputError) as caught:
        get(Client(data_of(size_bytes)), tmp_path / "f")

    assert "the disk is full" in caught.value.what


def uploads(taking):
    """A handler of small uploads; `taking` is a context in which each is read, and gets its path."""

    class Uploads(BaseHTTPRequestHandler):
        def do_PUT(self):
            with taking(self.path):
                self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("ETag", '"one"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    return Uploads


def test_files_that_are_uploaded_at_a_time_share_the_connections(tmp_path):
    at_once, most, lock = [], [], threading.Lock()

    @contextlib.contextmanager
    def taking(path):
        with lock:
            at_once.append(path)
            most.append(len(at_once))
        yield
        time.sleep(0.1)  # the others would come meanwhile
        with lock:
            at_once.remove(path)

    (tmp_path / "file").write_bytes(b"weights")
    with LoopbackServer(uploads(taking)) as server, ThreadPoolExecutor(4) as pool:
        site = ObjectStoreSite(bucket="models", endpoint=server.endpoint, transfer={"connections": 2})
        store = S3ObjectStore(site, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
        list(pool.map(lambda number: store.put_file(tmp_path / "file", f"s3://models/{number}"), range(4)))

    assert len(most) == 4
    assert max(most) <= 2


def test_what_is_uploaded_counts_once_the_store_has_it(tmp_path):
    counted, before = [], []

    @contextlib.contextmanager
    def taking(path):
        before.append(sum(counted))
        yield

    (tmp_path / "file").write_bytes(b"weights")
    with LoopbackServer(uploads(taking)) as server:
        site = ObjectStoreSite(bucket="models", endpoint=server.endpoint)
        store = S3ObjectStore(site, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
        store.put_file(tmp_path / "file", "s3://models/file", counted.append)

    assert before == [0]
    assert sum(counted) == len(b"weights")
