"""A Hub that lies, never ends or is not a Hub costs bounded memory, disk and time, and ends in an error."""

import contextlib
import gzip
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from slipway.tasks.adapters import bounded_http
from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.hub.hub import HuggingFaceHub
from slipway.tasks.adapters.hub.hub_download import IDLE_CONNECTIONS
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from tests.fakes.clock import ManualClock
from tests.local.core.servers import download
from tests.support.refused import refused
from tests.support.waiting import PATIENCE_S

SHA = "c" * 40
GOOD = {"rfilename": "config.json", "size": 4, "blobId": "a" * 40}
INFO = {"id": "acme/model", "sha": SHA, "gated": False, "siblings": [GOOD]}
CHUNK = b"x" * 65536


@contextlib.contextmanager
def serving(answer):
    """A server that answers every GET by `answer(handler)`; its address, and how many bytes it sent."""
    sent = [0]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            with contextlib.suppress(OSError):
                answer(self)

        def head(self, status=200, **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()

        def body(self, data):
            self.wfile.write(data)
            sent[0] += len(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
    finally:
        server.shutdown()
        server.server_close()


def whole(data, status=200, **headers):
    def answer(handler):
        handler.head(status, Content_Length=str(len(data)), **headers)
        handler.body(data)

    return answer


def without_end(prefix=b""):
    def answer(handler):
        handler.head()
        handler.body(prefix)
        while True:
            handler.body(CHUNK)

    return answer


def files(body):
    """The model's list of files as it should be, and `body` for each file."""

    def answer(handler):
        if "/api/" in handler.path:
            whole(json.dumps(INFO).encode(), Content_Type="application/json")(handler)
        else:
            body(handler)

    return answer


def resolve(answer, **hub):
    with serving(answer) as (address, sent):
        client = HuggingFaceHub(address, None, ManualClock(), **hub)
        return client.resolve("acme/model", "main"), sent


def refusal(answer, kind=InputError):
    with pytest.raises(kind) as caught:
        resolve(answer)
    assert len(str(caught.value)) < 800
    return str(caught.value)


def test_a_list_of_files_without_end_is_given_up():
    with serving(without_end(b'{"siblings": [')) as (address, sent), pytest.raises(InputError) as caught:
        HuggingFaceHub(address, None, ManualClock()).resolve("acme/model", "main")

    assert "more than" in caught.value.found
    assert sent[0] < 2 * bounded_http.ANSWER_BYTES


def test_an_error_page_without_end_is_given_up():
    def answer(handler):
        handler.head(404)
        while True:
            handler.body(CHUNK)

    assert "more than" in refusal(answer)


@pytest.mark.parametrize("status", [302, 404])
def test_what_comes_instead_of_a_file_is_bounded_too(tmp_path, status):
    def answer(handler):
        handler.head(status, Location="/elsewhere")
        for _ in range(3 * bounded_http.ANSWER_BYTES // len(CHUNK)):
            handler.body(CHUNK)

    with serving(files(answer)) as (address, sent):
        client = HuggingFaceHub(address, None, ManualClock())
        source = client.resolve("acme/model", "main")
        with refused(found=f"an answer of more than {bounded_http.ANSWER_BYTES} bytes"):
            download(client, source, tmp_path)

    assert sent[0] < 2 * bounded_http.ANSWER_BYTES


def test_a_hub_that_redirects_again_and_again_is_given_up():
    left = [100]

    def answer(handler):
        left[0] -= 1
        if left[0]:
            handler.head(302, Location=f"{handler.path}/on", Content_Length="0")
        else:
            whole(json.dumps(INFO).encode())(handler)

    assert "redirect" in refusal(answer, UnavailableError)


def test_an_answer_that_takes_too_long_is_given_up_though_it_goes_on():
    def dripping(handler):
        handler.head()
        for _ in range(500):
            handler.body(b" ")
            time.sleep(0.02)

    with refused(UnavailableError, found="was not complete after 0.3 s"):
        resolve(dripping, answer_s=0.3)


def test_a_silent_hub_is_not_waited_for():
    given_up = threading.Event()
    with refused(UnavailableError, found="ReadTimeout"):
        try:
            resolve(lambda _: given_up.wait(PATIENCE_S), stall_s=0.3)
        finally:
            given_up.set()


def test_a_compressed_answer_is_not_unpacked():
    bomb = gzip.compress(b" " * 10_000_000)

    assert "compressed by 'gzip'" in refusal(whole(bomb, Content_Encoding="gzip"))


def test_a_file_longer_than_announced_is_not_read_to_its_end(tmp_path):
    with serving(files(without_end())) as (address, sent):
        client = HuggingFaceHub(address, None, ManualClock())
        source = client.resolve("acme/model", "main")
        with pytest.raises(InputError) as caught:
            download(client, source, tmp_path)

    assert caught.value.expected == "4 bytes"
    assert sent[0] < 50_000_000
    assert list(tmp_path.iterdir()) == []


def test_a_byte_now_and_then_counts_as_standing_still(tmp_path):
    connections = []

    def dripping(handler):
        connections.append(handler.headers.get("Range"))
        handler.head(206 if connections[-1] else 200, Content_Length="1000000")
        while len(connections) <= 2 * IDLE_CONNECTIONS:
            handler.body(b"x")
            time.sleep(0.02)

    info = {**INFO, "siblings": [{**GOOD, "size": 1_000_000}]}

    def answer(handler):
        whole(json.dumps(info).encode())(handler) if "/api/" in handler.path else dripping(handler)

    with serving(answer) as (address, sent):
        source = HuggingFaceHub(address, None, Impatient(), stall_s=30).resolve("acme/model", "main")
        client = HuggingFaceHub(address, None, Impatient(), stall_s=0.2)
        with pytest.raises(UnavailableError) as caught:
            download(client, source, tmp_path)
        deadline = time.monotonic() + 20
        while len(connections) < IDLE_CONNECTIONS and time.monotonic() < deadline:
            time.sleep(0.01)  # the server may see the last one after its client left

    assert "stalled at" in caught.value.what
    assert len(connections) == IDLE_CONNECTIONS
    assert sent[0] < 1000 * IDLE_CONNECTIONS


class Impatient(SystemClock):
    """Real time, but pauses take none."""

    def sleep(self, seconds):
        pass


PORTAL = b"<!DOCTYPE html><html><title>Sign in to the network</title></html>"


@pytest.mark.parametrize(
    "body",
    [
        PORTAL,
        b"",
        b"null",
        b"[]",
        b"7",
        b'"text"',
        b"{}",
        b"\xff\xfe\x00",
        b"[" * 200_000,
        b'{"sha": ' + b"9" * 100_000 + b"}",
    ],
)
def test_what_is_no_hubs_answer_is_wrong_input_in_words(body):
    message = refusal(whole(body))

    assert "Check that hub.endpoint in the site file is a Hub" in message


ODD = [None, 7, -1, 2**70, 1.5, True, "", "x" * 300, [], {}, ["a"], {"a": 1}]


@pytest.mark.parametrize("field", ["sha", "siblings", "gated", "id", "tags", "cardData", "lastModified"])
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_no_odd_field_of_a_model_ends_in_an_error_that_is_not_ours(field, value):
    with contextlib.suppress(PipelineError):
        resolve(whole(json.dumps({**INFO, field: value}).encode()))


@pytest.mark.parametrize("field", ["rfilename", "size", "blobId", "lfs"])
@pytest.mark.parametrize("value", [*ODD, {"sha256": "zz"}, {"size": 4}], ids=repr)
def test_no_odd_field_of_a_file_ends_in_an_error_that_is_not_ours(field, value):
    with contextlib.suppress(PipelineError):
        resolve(whole(json.dumps({**INFO, "siblings": [{**GOOD, field: value}]}).encode()))


@pytest.mark.parametrize(
    "file",
    [
        {"rfilename": "config.json", "size": 4},
        {**GOOD, "blobId": None},
        {**GOOD, "lfs": {"size": 4}},
        {**GOOD, "size": None},
    ],
)
def test_a_file_without_digest_or_size_is_refused(file):
    assert "Check that hub.endpoint in the site file is a Hub" in refusal(
        whole(json.dumps({**INFO, "siblings": [file]}).encode())
    )


def test_a_file_that_is_listed_twice_is_refused():
    other = {**GOOD, "blobId": "b" * 40}

    assert "lists config.json more than once" in refusal(
        whole(json.dumps({**INFO, "siblings": [GOOD, other]}).encode())
    )
