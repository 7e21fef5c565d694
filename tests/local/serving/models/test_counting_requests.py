"""A front that counts for a scaler: the real Envoy, before a server that holds its answers back."""

import http.client
import json
import os
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from slipway.tasks.contracts.measured.traffic import read_front_page
from slipway.tasks.serving.rendered import front
from slipway.tasks.serving.rendered.commands import PORTS, TRITON_PORTS
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.waiting import PATIENCE_S, until

ENVOY = ENVIRONMENTS / "front" / "bin" / "envoy"
ADDRESS = f"127.83.{os.getpid() // 256 % 256}.{os.getpid() % 256}"
"""The ports are those of a pod: an address that nothing else has, nor the same test of another checkout."""


def asked(port, path, method="GET"):
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def gauges():
    status, text = asked(front.STATS_PORT, "/metrics")
    assert status == http.client.OK
    return {line.split()[0]: int(line.split()[1]) for line in text.splitlines() if line and not line.startswith("#")}


def in_flight():
    return gauges()['envoy_http_downstream_rq_active{envoy_http_conn_manager_prefix="http"}']


@pytest.fixture
def answers():
    """The server of the pod; it answers once this event is set."""
    allowed = threading.Event()

    class Held(BaseHTTPRequestHandler):
        def do_GET(self):
            allowed.wait(PATIENCE_S)
            self.send_response(http.client.OK)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer((ADDRESS, TRITON_PORTS["http"]), Held)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield allowed
    allowed.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def envoy(answers, tmp_path):
    if not ENVOY.exists():
        pytest.skip(f"{ENVOY.relative_to(REPOSITORY)} is missing: python3 -m local.environments front")
    config = json.loads(front.config(ADDRESS, 60, REPOSITORY / "k8s_manifests" / "serving", front.STATS_PORT))
    command = [ENVOY, "--disable-hot-restart", "--concurrency", "1", "--config-yaml", json.dumps(config)]
    with (tmp_path / "envoy.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        until(is_listening)
        yield answers
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def is_listening():
    try:
        return asked(front.STATS_PORT, "/metrics")[0] == http.client.OK
    except OSError:
        return False


def test_requests_that_wait_for_an_answer_are_counted(envoy):
    clients = [threading.Thread(target=asked, args=(PORTS["http"], "/v2/models/demo/stats")) for _ in range(3)]
    for client in clients:
        client.start()

    until(lambda: in_flight() == len(clients))
    envoy.set()
    for client in clients:
        client.join()

    until(lambda: in_flight() == 0)


def test_answers_are_counted_by_their_status(envoy):
    envoy.set()
    asked(PORTS["http"], "/v2/models/demo/stats")
    asked(PORTS["http"], "/v1/models")  # there is no OpenAI API behind this front

    def found(status_class):
        labels = f'envoy_response_code_class="{status_class}",envoy_http_conn_manager_prefix="http"'
        return gauges()[f"envoy_http_downstream_rq_xx{{{labels}}}"]

    assert (found(2), found(5)) == (1, 1)


def test_a_canary_reads_how_many_answers_there_were_and_how_long_they_took(envoy):
    waiting = threading.Thread(target=asked, args=(PORTS["http"], "/v2/models/demo/stats"))
    waiting.start()
    until(lambda: in_flight() == 1)
    time.sleep(0.5)
    envoy.set()
    waiting.join()
    asked(PORTS["http"], "/v1/models")

    until(lambda: read_front_page(asked(front.STATS_PORT, "/metrics")[1]).timed == 2)
    counted = read_front_page(asked(front.STATS_PORT, "/metrics")[1])

    assert (counted.succeeded, counted.failed) == (1, 1)
    assert counted.request_s >= 0.4


@pytest.mark.parametrize(
    ("path", "method"),
    [("/quitquitquit", "POST"), ("/stats/prometheus", "GET"), ("/metrics", "POST"), ("/metrics/../config_dump", "GET")],
)
def test_nothing_else_of_the_admin_interface_is_reached(envoy, path, method):
    assert asked(front.STATS_PORT, path, method)[0] == http.client.NOT_FOUND


@pytest.mark.parametrize("query", ["?filter=.*", "?a&filter=.*", "?a=b&format=json&filter=server"])
def test_a_query_shows_no_other_numbers(envoy, query):
    _, text = asked(front.STATS_PORT, f"/metrics{query}")

    names = {line.partition("{")[0] for line in text.splitlines() if line and not line.startswith("#")}
    times = {f"envoy_http_downstream_rq_time_{part}" for part in ("bucket", "sum", "count")}  # once there was an answer
    assert names - times == {"envoy_http_downstream_rq_active", "envoy_http_downstream_rq_xx"}
