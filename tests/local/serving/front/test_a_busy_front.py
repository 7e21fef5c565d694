"""Clients that hold what a front has: requests, connections, time. Each is sent away, and the probes are still answered.

The front is the real one. What answers behind it holds every POST, which no real model does for as long as a test likes.
"""

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from slipway.tasks.serving.rendered import front
from tests.local.serving.front.front_alone import REQUESTS, Front, UnixServer
from tests.local.serving.triton_server import LOOPBACK
from tests.support import plain_http
from tests.support.waiting import PATIENCE_S, until

GENERATE, READY = "/v2/models/demo/generate", "/v2/models/demo/ready"
PROBES = ["/live", "/health/live"]


class Held(BaseHTTPRequestHandler):
    """Answers GET at once, and POST when the test says so."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer()

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.server.go.wait(PATIENCE_S)
        self._answer()

    def log_message(self, *_):
        """Nothing: its client may be a Unix socket, which has no address."""

    def _answer(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """What stands for Triton and for OpenAI's API, whose socket is in the front's folder."""
    folder = tmp_path_factory.mktemp("front")
    with ThreadingHTTPServer((LOOPBACK, 0), Held) as triton, UnixServer(str(folder / front.OPENAI_SOCKET), Held) as api:
        triton.folder, triton.go = folder, threading.Event()
        for server in (triton, api):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        yield triton
        for server in (triton, api):
            server.shutdown()


@pytest.fixture(scope="module")
def door(behind):
    with Front(behind.server_port, behind.folder) as running:
        yield running


def status(connection):
    """Status of the answer; 0 if the connection is closed without one."""
    with contextlib.suppress(ConnectionError):
        line = connection.makefile("rb").readline().split()
        return int(line[1]) if line else 0
    return 0


def answered(connection):
    """Status of the answer, and its body, which is JSON."""
    answer = HTTPResponse(connection)
    answer.begin()
    assert answer.getheader("content-type") == "application/json"
    return answer.status, json.loads(answer.read())["error"]


def is_openai_s(error):
    """Whether the error has the form that slipway/tasks/serving/openai_api/http/errors.py writes."""
    return set(error) == {"message", "type", "param", "code"} and bool(error["message"])


def test_probes_are_answered_while_clients_have_all_requests_in_flight(door, behind):
    url = f"http://{LOOPBACK}:{door.port}"

    def ask():
        answered = until(lambda: served(plain_http.post(f"{url}{GENERATE}", json={}, timeout=PATIENCE_S)))
        return answered.status_code

    def served(answer):
        return None if answer.status_code == 503 else answer

    def is_refused():
        with contextlib.suppress(httpx.ReadTimeout):
            answer = plain_http.get(f"{url}{READY}", timeout=1)
            told = answer.status_code == 503 and isinstance(answer.json()["error"], str)
            return told and answer.headers["retry-after"] == "1"
        return False

    # as many are with Triton, as many wait in the front, and more ask again and again
    with ThreadPoolExecutor(3 * REQUESTS) as clients:
        try:
            held = [clients.submit(ask) for _ in range(3 * REQUESTS)]
            until(is_refused)
            assert [door.probe(path) for path in PROBES] == [200, 200]
        finally:
            behind.go.set()
        assert [each.result() for each in held] == [200] * len(held)


def test_probes_are_answered_while_clients_hold_all_connections(door):
    kept = httpx.Limits(keepalive_expiry=None)  # a new connection would find none free
    with (
        plain_http.client(base_url=f"http://{LOOPBACK}:{door.port}", limits=kept) as earlier,
        contextlib.ExitStack() as idle,
    ):
        assert earlier.get(READY).status_code == 200

        def is_full():
            with door.connect() as late, contextlib.suppress(ConnectionError):
                late.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return status(late) == 0
            return True

        def filled():
            # one by one: connections that ended just now may still count
            return is_full() or idle.enter_context(door.connect()) is None

        until(filled, every_s=0.01)
        assert [door.probe(path) for path in PROBES] == [200, 200]
        assert earlier.get(READY).status_code == 200


def test_the_probe_of_openai_s_api_waits_for_a_process_that_is_starting(behind, tmp_path):
    with Front(behind.server_port, tmp_path) as early, ThreadPoolExecutor(1) as kubelet:
        waiting = kubelet.submit(early.probe, PROBES[1])
        with contextlib.suppress(TimeoutError):
            waiting.result(timeout=1)
        assert not waiting.done()
        with UnixServer(str(tmp_path / front.OPENAI_SOCKET), Held) as api:
            threading.Thread(target=api.serve_forever, daemon=True).start()
            assert waiting.result() == 200
            api.shutdown()


@pytest.mark.parametrize("path", ["/metrics", "/v2", "/health", "/v2/models/demo/ready", "/health/../v2/logging"])
def test_the_port_of_the_probes_answers_nothing_else(door, path):
    assert door.probe(path) == 404


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"POST /v2/models/demo/generate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{",
    ],
    ids=["headers", "body", "chat"],
)
def test_a_client_that_sends_a_request_too_slowly_is_sent_away(door, sent):
    with door.connect() as slow:
        slow.sendall(sent)
        found, error = answered(slow)

        assert found == 408
        assert error if b"/v2/" in sent else is_openai_s(error)
        assert slow.recv(1) == b""


@pytest.mark.parametrize(
    "headers",
    [b"".join(b"X-%d: 1\r\n" % number for number in range(200)), b"X-Large: " + b"x" * (64 << 10) + b"\r\n"],
    ids=["many", "large"],
)
def test_a_flood_of_headers_is_refused(door, headers):
    with door.connect() as flood:
        flood.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")

        found, error = answered(flood)

        assert (found, is_openai_s(error)) == (431, True)


@pytest.mark.parametrize(
    ("path", "size", "expected"),
    [
        ("/v1/chat/completions", 5000, 400),
        ("/v1/messages", 5000, 413),
        ("/v2/models/demo/generate", 5000, 413),
        ("/elsewhere", 1, 404),
        ("/v2/logging", 1, 404),
    ],
)
def test_what_the_front_refuses_by_itself_is_json_in_the_form_of_the_api(door, path, size, expected):
    answer = plain_http.post(f"http://{LOOPBACK}:{door.port}{path}", content=b"x" * size)
    error = answer.json()["error"]

    assert answer.status_code == expected
    if path == "/v1/messages":
        assert (answer.json()["type"], error["type"]) == ("error", "request_too_large")
    elif path.startswith("/v2"):
        assert isinstance(error, str)
    else:
        assert is_openai_s(error)


def test_clients_of_openai_ask_again_while_its_processes_are_away(behind, door):
    socket_file = behind.folder / front.OPENAI_SOCKET
    away = socket_file.rename(behind.folder / "away.sock")
    try:
        answer = plain_http.get(f"http://{LOOPBACK}:{door.port}/v1/models")
    finally:
        away.rename(socket_file)
    error = answer.json()["error"]

    assert (answer.status_code, error["type"], error["code"]) == (503, "service_unavailable", "unavailable")
    assert answer.headers["retry-after"] == "1"


def test_a_silent_connection_for_grpc_is_closed(door):
    with door.connect(door.grpc_port) as silent:
        assert silent.makefile("rb").read() == b""
