"""Requests that nobody would send by mistake, against the real front and the real engine, beside a client in peace.

Here a few hundred of them; `python3 -m tests.fuzz --requests 20000` sends more, and other ones each time.
"""

import json
import os
import secrets
import statistics
import threading
import time
from collections import Counter

import httpx
import pytest

from tests.local.serving.hostile_requests import CHAT, QUESTION, Stranger
from tests.local.serving.openai_server import OpenAiServer

REQUESTS, SEED = "SLIPWAY_FUZZ_REQUESTS", "SLIPWAY_FUZZ_SEED"
FEW = 300
DEADLINE_S = 60.0
"""No answer may take longer, on a machine that does other things as well."""
CLIENTS = 3
ANSWER = "The capital of France is Paris."
ANSWERED = {200, 400, 404, 413, 503}
RETRY = "Ask again."


class Peaceful:
    """Asks the same question again and again; `with` stops it."""

    def __init__(self, url):
        self.times, self.failures, self._stop = [], [], threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def p99(self):
        return statistics.quantiles(self.times, n=100)[-1] if len(self.times) > 1 else 0.0

    def _run(self, url):
        body = {"model": "demo", "messages": [{"role": "user", "content": QUESTION}]}
        with httpx.Client(base_url=url, timeout=DEADLINE_S) as http:
            while not self._stop.wait(0.02):
                began = time.monotonic()
                try:
                    text = http.post(CHAT, json=body).json()["choices"][0]["message"]["content"]
                except Exception as error:  # noqa: BLE001 - to a client every error is a failed request
                    text = repr(error)
                self.times.append(time.monotonic() - began)
                if text != ANSWER:
                    self.failures.append(text)


class Report:
    """What came back, by status, and what should not have."""

    def __init__(self):
        self.statuses, self.wrong, self.longest_s = Counter(), [], 0.0
        self._lock = threading.Lock()

    def add(self, request, answer, took_s):
        complaint = judged(answer)
        with self._lock:
            self.statuses[answer.status_code] += 1
            self.longest_s = max(self.longest_s, took_s)
            if complaint:
                self.wrong.append((complaint, request.path, request.body[:600], answer.text[:300]))

    def fail(self, request, error):
        with self._lock:
            self.wrong.append((repr(error), request.path, request.body[:600], ""))


def judged(answer):
    """What is wrong with an answer, whatever the request; empty if nothing is."""
    if answer.status_code not in ANSWERED:
        return f"status {answer.status_code}"
    kind = answer.headers.get("content-type", "")
    documents = [answer.text]
    if kind.startswith("text/event-stream"):
        documents = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        documents = [each for each in documents if each != "[DONE]"]
    try:
        parsed = [json.loads(each, parse_constant=refuse) for each in documents]
        answer.text.encode()
    except ValueError as error:
        return f"not JSON: {error}"
    errors = [each["error"] for each in parsed if "error" in each]
    if answer.status_code != 200 and not errors:
        return "an error without its text"
    if answer.status_code == 503:
        said = errors[0]["message"] if isinstance(errors[0], dict) else errors[0]
        return "" if said.endswith(RETRY) else f"status 503: {said}"
    return ""


def refuse(name):
    raise ValueError(f"{name} in an answer")


@pytest.fixture(scope="module")
def api(server, tmp_path_factory):
    with OpenAiServer(server, tmp_path_factory.mktemp("openai")) as running:
        yield running


def test_whatever_a_stranger_sends_others_are_answered(api, server):
    count, seed = int(os.environ.get(REQUESTS, FEW)), int(os.environ.get(SEED, secrets.randbits(32)))
    requests, report = (Stranger(f"{seed}/{number}").request() for number in range(count)), Report()
    lock = threading.Lock()

    def send():
        with httpx.Client(base_url=api.url, timeout=DEADLINE_S, headers={"Content-Type": "application/json"}) as http:
            while True:
                with lock:
                    request = next(requests, None)
                if request is None:
                    return
                began = time.monotonic()
                try:
                    answer = http.post(request.path, content=request.body)
                except httpx.HTTPError as error:
                    report.fail(request, error)
                else:
                    report.add(request, answer, time.monotonic() - began)

    with Peaceful(api.url) as alone:
        time.sleep(3)
    with Peaceful(api.url) as peaceful:
        threads = [threading.Thread(target=send) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(
        f"seed {seed}: {count} requests, statuses {dict(sorted(report.statuses.items()))}, the longest "
        f"{report.longest_s:.1f} s, {len(report.wrong)} wrong; beside them {len(peaceful.times)} of a steady client, "
        f"{len(peaceful.failures)} failed, p99 {peaceful.p99():.2f} s, alone {alone.p99():.2f} s"
    )

    assert report.wrong == [], f"seed {seed}"
    assert peaceful.failures == [], f"seed {seed}"
    assert server.process.poll() is None
    assert api.openai.poll() is None
    assert "Traceback" not in api.log.read_text(), f"seed {seed}"
