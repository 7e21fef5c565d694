"""How connections and requests of OpenAI's API end: at a drain, at their age, when a client or the server leaves."""

import threading
import time
from pathlib import Path

import httpx
import openai
import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.kube.front import EnvoyFront
from slipway.tasks.serving.pod.drain import drain
from slipway.tasks.serving.rendered.front import SOCKET
from tests.local.serving.openai_server import KeptClient, OpenAiServer, client_of
from tests.local.serving.triton_server import RunningAnswer
from tests.support.waiting import PATIENCE_S

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
SHORT = {"model": "demo", "messages": [{"role": "user", "content": QUESTION}]}
LONG = {
    "model": "demo",
    "messages": [{"role": "user", "content": "Tell me everything."}],
    "temperature": 8.0,
    "seed": 3,
    "stream": True,
}
STAYS = {"text_input": "Tell me everything.", "temperature": 8.0, "seed": 4, "max_tokens": 14_000}
"""Begins before an answer of 15,000 tokens, so it ends long before that one does."""


@pytest.fixture
def own_front(long_server, long_api, tmp_path):
    """A front that a test may end, before the API of the session."""
    with OpenAiServer(long_server, tmp_path, behind=long_api) as running:
        yield running


class UntilItLeft(SystemClock):
    """The time for a client to leave ends when it has left."""

    def __init__(self):
        self.left = threading.Event()

    def sleep(self, seconds):
        self.left.wait(60)
        super().sleep(seconds)


def test_a_kept_connection_is_told_to_close_at_a_drain_and_no_request_is_lost(own_front):
    front, clock = EnvoyFront(own_front.folder / Path(SOCKET).name), UntilItLeft()
    with httpx.Client(base_url=own_front.url, timeout=60) as http:
        said = []

        def ask():
            response = http.post("/v1/chat/completions", json={**SHORT, "max_tokens": 6})
            said.append(response.headers.get("connection", ""))
            return response.json()["choices"][0]["message"]["content"]

        with KeptClient(ask) as kept:
            while len(kept.answers) < 3:
                assert not kept.failures, kept.failures
            drained = threading.Thread(target=drain, args=(front, clock), kwargs={"leave_s": 0, "requests_s": 20})
            drained.start()
            while "close" not in said[:-1]:  # one more answer comes, over another connection
                assert not kept.failures, kept.failures
        clock.left.set()
        drained.join()

    assert (kept.failures, said[0], said[-1]) == ([], "", "close")
    assert own_front.front.wait(PATIENCE_S) == 0


def test_a_stream_in_flight_at_a_drain_is_finished(own_front):
    with client_of(own_front) as client:
        stream = client.chat.completions.create(**LONG, max_tokens=1500)
        next(stream)
        drained = threading.Thread(target=own_front.drain, args=(0.5, 60))
        drained.start()
        rest = [chunk.choices[0] for chunk in stream]
        drained.join()

    assert rest[-1].finish_reason == "length"
    assert own_front.front.wait(PATIENCE_S) == 0


def test_a_connection_is_closed_at_its_age(long_server, long_api, tmp_path):
    said, connections = [], []

    def note(response):
        said.append(response.headers.get("connection"))
        connections.append(response.extensions["network_stream"].get_extra_info("client_addr"))

    kept = {"limits": httpx.Limits(keepalive_expiry=None), "event_hooks": {"response": [note]}, "timeout": 60}
    aging = OpenAiServer(long_server, tmp_path, connection_age_s=5, behind=long_api)
    with aging as front, httpx.Client(base_url=front.url, **kept) as http:
        deadline = time.monotonic() + 60
        while "close" not in said and time.monotonic() < deadline:
            http.get("/v1/models")
            time.sleep(0.1)
        http.get("/v1/models")

    first, last, other = connections[0], connections[-2], connections[-1]
    assert said == [None] * (len(said) - 2) + ["close", None]
    assert first == last != other


def test_a_client_that_leaves_frees_its_slot(long_api, long_server):
    with RunningAnswer(long_server, **STAYS) as other, client_of(long_api) as client:
        stream = client.chat.completions.create(**LONG, max_tokens=15_000)
        next(stream)
        stream.close()

        assert other.outlasts(lambda: client.chat.completions.create(**SHORT, max_tokens=6))


def test_a_client_that_does_not_wait_for_a_whole_answer_frees_its_slot(long_api, long_server):
    with RunningAnswer(long_server, **STAYS) as other, client_of(long_api) as client:
        begun = long_server.begun()
        while long_server.begun() == begun:
            with httpx.Client(base_url=long_api.url, timeout=0.5) as http, pytest.raises(httpx.ReadTimeout):
                http.post("/v1/chat/completions", json={**LONG, "stream": False, "max_tokens": 15_000})

        assert other.outlasts(lambda: client.chat.completions.create(**SHORT, max_tokens=6))


def test_a_model_that_is_stopping_asks_its_clients_for_another_try(start_server, make_long_repository, tmp_path):
    # until its time to stop is over, it answers as long as it is asked
    triton = start_server(make_long_repository(2), arguments=["--exit-timeout-secs=2"])
    with (
        OpenAiServer(triton, tmp_path) as api,
        httpx.Client(base_url=api.url, timeout=60) as client,
        RunningAnswer(triton, **{**STAYS, "max_tokens": 1500}),
    ):
        triton.process.terminate()
        while (answer := client.post("/v1/chat/completions", json={**SHORT, "max_tokens": 6})).status_code == 200:
            pass

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert int(answer.headers["Retry-After"]) > 0


def test_a_server_that_ends_does_not_wait_for_the_connections_of_the_api(start_server, make_repository, tmp_path):
    triton = start_server(make_repository())
    with OpenAiServer(triton, tmp_path) as api, client_of(api) as client:
        client.chat.completions.create(**SHORT)
        triton.process.terminate()
        ended = triton.process.wait(30)
        with pytest.raises(openai.InternalServerError, match="does not answer") as refused:
            client.chat.completions.create(**SHORT)

    assert ended == 0  # Triton's own limit of 20 s would end it with 1
    assert (refused.value.status_code, refused.value.code) == (503, "unavailable")
