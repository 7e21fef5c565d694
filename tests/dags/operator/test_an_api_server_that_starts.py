"""An API server that was away refuses what it grants, until it has read its roles and accounts.

Seen on Kubernetes 1.36: the first answer after an outage of 164 s was 403 to a request that its Roles allow.
"""

import socket
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from kubernetes import client

from slipway.airflow.outages import STARTING_S, NoAnswerError, Outage, PatientRest
from tests.support.ports import free_ports

LOOPBACK = "127.0.0.1"


class Api(BaseHTTPRequestHandler):
    """Answers with one status after the other, and goes on with the last."""

    def do_GET(self):
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Restart:
    """An API server that begins to listen, with these statuses, when its client waits for it."""

    def __init__(self, stack, *statuses):
        (self.port,) = free_ports(1)
        self._stack, self._statuses, self.now = stack, list(statuses), 0.0

    def listen(self):
        server = self._stack.enter_context(HTTPServer((LOOPBACK, self.port), Api))
        server.statuses = self._statuses
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._stack.callback(server.shutdown)
        self._statuses = None

    def wait(self, seconds):
        """The client's sleep."""
        self.now += seconds
        if self._statuses:
            self.listen()

    def get(self):
        rest = PatientRest(client.Configuration(), Outage(clock=lambda: self.now), self.wait)
        return rest.request("GET", f"http://{LOOPBACK}:{self.port}/api/v1/namespaces/slipway/pods")


@pytest.fixture
def stack():
    with ExitStack() as made:
        yield made


def test_the_first_refusals_after_an_outage_are_asked_again(stack):
    assert Restart(stack, 403, 401, 403, 200).get().status == 200


@pytest.mark.parametrize(("status", "waited_s"), [(403, STARTING_S), (422, 0)])
def test_a_refusal_that_lasts_is_passed_on(stack, status, waited_s):
    restart = Restart(stack, status)

    with pytest.raises(client.ApiException) as caught:
        restart.get()

    assert caught.value.status == status
    assert waited_s <= restart.now < waited_s + 2


def test_without_an_outage_a_refusal_is_passed_on_at_once(stack):
    restart = Restart(stack, 403)
    restart.listen()

    with pytest.raises(client.ApiException):
        restart.get()

    assert restart.now == 0


def test_a_server_that_ends_the_handshake_has_not_answered():
    """As a load balancer does whose servers are all away."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        port = listening.getsockname()[1]

        def refuse():
            with listening.accept()[0] as connection:
                connection.recv(1)

        threading.Thread(target=refuse, daemon=True).start()
        rest = PatientRest(client.Configuration(), Outage(patience_s=0))
        with pytest.raises(NoAnswerError, match="has not answered"):
            rest.request("GET", f"https://{LOOPBACK}:{port}/api/v1/namespaces/slipway/pods")


def test_each_report_of_an_outage_says_what_the_newest_try_met(caplog):
    """A server that is killed breaks its connections off; then its port refuses new ones."""
    waits = []

    with socket.create_server((LOOPBACK, 0)) as listening:
        port = listening.getsockname()[1]

        def end():
            with listening.accept()[0] as connection:
                connection.recv(1)
            listening.close()

        killed = threading.Thread(target=end)
        killed.start()

        def wait(seconds):
            killed.join()
            waits.append(seconds)

        outage = Outage(patience_s=100, clock=lambda: 40.0 * len(waits))
        with pytest.raises(NoAnswerError):
            PatientRest(client.Configuration(), outage, wait).request("GET", f"http://{LOOPBACK}:{port}/api")

    reasons = [record.args[0] for record in caplog.records if "does not answer" in record.message]
    assert reasons == ["the connection broke off", "connection refused", "connection refused"]
    assert waits == [0.5, 1.0, 2.0]
