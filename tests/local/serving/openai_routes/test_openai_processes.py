"""Several processes of OpenAI's API behind one front: all of them answer, and they end together."""

import os
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from tests.local.serving.openai_server import OpenAiServer
from tests.local.serving.triton_server import together
from tests.support import plain_http
from tests.support.waiting import until

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
PROCESSES = 2


@pytest.fixture
def own(server, tmp_path):
    """An API that a test may end."""
    with OpenAiServer(server, tmp_path, processes=PROCESSES) as running:
        yield running


@pytest.fixture(scope="module")
def two(server, tmp_path_factory):
    with OpenAiServer(server, tmp_path_factory.mktemp("two"), processes=PROCESSES) as running:
        yield running


def children(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def gone(pids, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def ask(url):
    body = {"model": "demo", "messages": [{"role": "user", "content": QUESTION}]}
    return plain_http.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()["choices"][0]["message"][
        "content"
    ]


def test_every_process_answers_through_the_front_and_by_its_own_socket(two):
    answers = together(16, lambda _: ask(two.url))
    models = []
    for name in two.sockets:
        with plain_http.client(transport=httpx.HTTPTransport(uds=str(two.folder / name))) as own:
            models.append(own.get("http://pod/v1/models").json()["data"][0]["id"])

    assert (answers, models) == ([ANSWER] * 16, ["demo"] * PROCESSES)
    assert len(children(two.openai)) == PROCESSES


def test_no_process_refuses_a_connection_once_the_first_one_runs(server, tmp_path):
    starting = OpenAiServer(server, tmp_path, processes=PROCESSES)
    try:
        until(lambda: children(starting.openai))

        for name in starting.sockets:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / name))
    finally:
        starting.__exit__()


def counted_by(api, query=""):
    """Requests that each process has counted, as it tells them by its own socket."""
    name, counted = 'slipway_openai_requests_total{model="demo",code="200"} ', []
    for each in api.sockets:
        with plain_http.client(transport=httpx.HTTPTransport(uds=str(api.folder / each))) as own:
            lines = own.get(f"http://pod/metrics{query}").text.splitlines()
        counted.append(sum(float(line.removeprefix(name)) for line in lines if line.startswith(name)))
    return counted


def test_each_process_tells_what_all_of_them_counted(two):
    before = counted_by(two)
    together(8, lambda _: ask(two.url))

    assert counted_by(two) == [before[0] + 8] * PROCESSES
    assert sum(counted_by(two, "?own=1")) == before[0] + 8


def test_they_end_together_when_they_are_told_to(own):
    pids = children(own.openai)
    own.openai.terminate()

    assert own.openai.wait(20) == 128 + signal.SIGTERM
    assert gone(pids)


def test_one_that_dies_ends_the_container_so_that_it_is_started_again(own):
    first, *others = children(own.openai)
    os.kill(first, signal.SIGKILL)

    assert own.openai.wait(20) == 70
    assert gone(others)
    assert "a process of OpenAI's API ended with -9" in own.log.read_text()


def test_none_outlives_a_parent_that_is_killed(own):
    pids = children(own.openai)
    own.openai.kill()

    assert gone(pids)
