"""A refusal is asked again while an API server starts, and passed on at once by one that has started."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from kubernetes import client

from slipway.tasks.adapters.kube.starting_server import STARTING_S, wait_while_starting
from tests.fakes.clock import ManualClock

NO_ROLE = 'pods is forbidden: User "someone" cannot list resource "pods" in API group "" in the namespace "slipway"'
KNOWN, EXPIRED = "Bearer known", "Bearer expired"
NO_LATEST = 'admission webhook "policy.example.com" denied the request: images cannot use the tag latest'


class Api(BaseHTTPRequestHandler):
    """Refuses everything but /readyz, which it answers with one status after the other, and goes on with the last.

    Of an expired token it knows nothing. One that it knows gets 200 where strangers are told nothing.
    """

    def do_GET(self):
        if self.path != "/readyz":
            return self._answer(self.server.status, {"kind": "Status", "message": self.server.message})
        if self.headers["Authorization"] == EXPIRED:
            return self._answer(401, {})
        if self.headers["Authorization"] and self.server.hides:
            return self._answer(200, {})
        states = self.server.states
        return self._answer(states.pop(0) if len(states) > 1 else states[0], {})

    def _answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), Api) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


def waited(server, token, message, states, *, hides=False):
    """How long a client waits before it passes the refusal on."""
    server.status, server.message, server.states = 401 if token == EXPIRED else 403, message, list(states)
    server.hides = hides
    configuration = client.Configuration(host=f"http://127.0.0.1:{server.server_port}")
    configuration.api_key = {"authorization": token}
    api, clock = client.ApiClient(configuration), ManualClock()
    wait_while_starting(api, clock)
    began = clock.monotonic()
    with pytest.raises(client.ApiException) as caught:
        client.CoreV1Api(api).list_namespaced_pod("slipway")
    assert caught.value.status == server.status
    return clock.monotonic() - began


refused = pytest.mark.parametrize(("token", "message"), [(EXPIRED, "Unauthorized"), (KNOWN, NO_ROLE)])


@refused
def test_one_that_has_started_is_believed_at_once(server, token, message):
    assert waited(server, token, message, [200]) == 0


@pytest.mark.parametrize("state", [401, 403])
def test_one_that_tells_strangers_nothing_is_believed_at_once_by_whom_it_knows(server, state):
    assert waited(server, KNOWN, NO_ROLE, [state], hides=True) == 0


@refused
def test_one_that_starts_is_asked_until_it_has_started(server, caplog, token, message):
    # of each pair the second is asked for with the token, if that is not refused anyway
    states = [403, 500, 200] if token == EXPIRED else [403, 403, 500, 500, 200]
    assert waited(server, token, message, states) == 2
    assert waited(server, token, message, [403]) == STARTING_S
    assert {each.levelname for each in caplog.records} == {"WARNING"}


def test_what_admission_denies_is_no_sign_of_a_start(server):
    assert waited(server, KNOWN, NO_LATEST, [500]) == 0
