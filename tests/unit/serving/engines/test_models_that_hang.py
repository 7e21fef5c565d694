"""The liveness of a server: models that no longer take requests, seen over several probes."""

from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

import pytest

from slipway.tasks.serving.pod.live import MOST_GAP_S, problems
from tests.fakes.servers.loopback_server import LoopbackServer

PERIOD_S, STALLED_S = 15, 600
PATH = "/v2/health/ready"


class Triton:
    """A server whose numbers a test sets."""

    def __init__(self):
        self.pending, self.answered, self.status = {"demo": 0}, {"demo": 0}, 200

    def metrics(self):
        lines = [
            f'nv_inference_pending_request_count{{model="{name}",version="1"}} {number}'
            for name, number in self.pending.items()
        ]
        lines += [
            f'nv_inference_request_success{{model="{name}",version="1"}} {number}'
            for name, number in self.answered.items()
        ]
        return "\n".join(["# HELP", 'nv_inference_request_failure{model="demo",reason="OTHER",version="1"} 0', *lines])


@pytest.fixture
def triton():
    return Triton()


@pytest.fixture
def probe(triton, tmp_path):
    """Probe at a time; returns what is wrong."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = triton.metrics().encode() if self.path == "/metrics" else b""
            self.send_response(200 if self.path == "/metrics" else triton.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with LoopbackServer(Handler) as server:
        host, port = urlsplit(server.endpoint).hostname, urlsplit(server.endpoint).port

        def look(now):
            return problems(host, port, port, [PATH], stalled_s=STALLED_S, state=tmp_path / "live.json", now=now)

        yield look


def over(probe, seconds, start=0, before=lambda: None):
    """Probe every period; what the last probe said."""
    said = []
    for now in range(start, start + seconds + 1, PERIOD_S):
        before()
        said = probe(now)
    return said


def test_a_model_that_lets_requests_wait_and_answers_none_is_dead(triton, probe):
    triton.pending["demo"] = 2

    assert over(probe, STALLED_S - PERIOD_S) == []
    assert over(probe, PERIOD_S, STALLED_S) != []


def test_a_busy_model_lives_as_long_as_it_answers(triton, probe):
    triton.pending["demo"] = 500

    def answer_now_and_then():
        triton.answered["demo"] += 1

    assert over(probe, 3 * STALLED_S, before=answer_now_and_then) == []


def test_an_idle_model_lives(probe):
    assert over(probe, 3 * STALLED_S) == []


def test_one_hung_model_of_several_is_named(triton, probe):
    triton.pending.update(demo=0, other=1)

    assert ["other" in said for said in over(probe, STALLED_S)] == [True]


def test_a_server_that_was_restarted_is_not_blamed_for_the_last_one(triton, probe):
    triton.pending["demo"] = 1
    over(probe, STALLED_S)

    assert probe(STALLED_S + MOST_GAP_S + 1) == []


def test_a_model_that_is_gone_is_dead_at_once(triton, probe):
    triton.status = 400

    assert probe(0) == [f"{PATH}: HTTP status 400"]


def test_a_server_lives_where_nothing_can_be_noted(triton, probe, tmp_path):
    (tmp_path / "live.json").mkdir()
    triton.pending["demo"] = 1

    assert probe(0) == []
