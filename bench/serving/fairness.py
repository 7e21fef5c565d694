"""`python -m bench.serving.fairness`: how long a client with a key waits beside another one that floods the model.

Serves the demo's model with its front and OpenAI's API, once as for a site with keys, where clients take turns
(docs/decisions/0047), and once without turns. `alice` asks one question after the other, alone and beside FLOOD
requests of `mallory` at once. The front passes their names on as it does when it has read their keys. The goal is that
alice waits for no more than GOAL rounds of the answers that the model makes at once.
"""

import http.client
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.pod import ADDRESS, FRONT, pod
from bench.serving.serving import DEMO, NAME, make_repository
from bench.serving.strangers import CHAT
from slipway.tasks.contracts.api_keys import CLIENT_HEADER

FLOOD, QUESTIONS, TIMEOUT_S = 128, 20, 120.0
AT_ONCE, ROOM = 16, 450
"""The limits of the demo's model and of the laptop's pods."""
GOAL = 3.0
QUESTION = {"role": "user", "content": "Tell me everything."}
LONG = {"model": NAME, "messages": [QUESTION], "max_tokens": 64, "temperature": 1.9, "seed": 3}


@dataclass
class Client:
    """Asks over one connection under one name."""

    name: str
    statuses: Counter[int] = field(default_factory=Counter)

    def ask(self, connection: http.client.HTTPConnection) -> float:
        """Seconds of an answer."""
        began = time.monotonic()
        headers = {"Content-Type": "application/json", CLIENT_HEADER: self.name}
        connection.request("POST", CHAT, json.dumps(LONG), headers)
        response = connection.getresponse()
        response.read()
        self.statuses[response.status] += 1
        return time.monotonic() - began

    def ask_often(self, times: int) -> list[float]:
        """Seconds of answers, one after the other."""
        connection = connect()
        seconds = [self.ask(connection) for _ in range(times)]
        connection.close()
        return seconds


def connect() -> http.client.HTTPConnection:
    """A connection to the front."""
    return http.client.HTTPConnection(ADDRESS, FRONT["http"], timeout=TIMEOUT_S)


@contextmanager
def flood(client: Client) -> Iterator[None]:
    """Keep FLOOD requests under way within the block."""
    over = threading.Event()

    def ask_on() -> None:
        connection = connect()
        while not over.is_set():
            client.ask(connection)
        connection.close()

    threads = [threading.Thread(target=ask_on) for _ in range(FLOOD)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def measured(further: list[str]) -> tuple[float, float]:
    """Median seconds of alice's answers, alone and beside the flood, with these arguments of OpenAI's API."""
    with tempfile.TemporaryDirectory() as folder:
        make_repository(Path(folder), DEMO)
        with pod(Path(folder) / "pod", {NAME: None}, openai=["--clients", *further]):
            alice, mallory = Client("alice"), Client("mallory")
            alone = median(alice.ask_often(QUESTIONS))
            with flood(mallory):
                alice.ask_often(1)
                began, before = time.monotonic(), mallory.statuses[http.client.OK]
                beside = median(alice.ask_often(QUESTIONS))
                rate = (mallory.statuses[http.client.OK] - before) / (time.monotonic() - began)
    print(
        f"{' '.join(further) or 'no turns'}: alice alone {alone:.2f} s, beside {FLOOD} requests of mallory "
        f"{beside:.2f} s {dict(alice.statuses)}; mallory {rate:.1f} answers a second {dict(mallory.statuses)}",
        flush=True,
    )
    return beside, AT_ONCE / rate


def verdict(rounds: float) -> str:
    """What became of the goal."""
    return "met" if rounds <= GOAL else "missed"


def main() -> int:
    """Measure both."""
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", flush=True)
    without, _ = measured([])
    beside, round_s = measured([f"--turns={AT_ONCE}/{ROOM}"])
    rounds = beside / round_s
    print(
        f"turns: {without / beside:.1f} times faster than without; {rounds:.1f} rounds, goal {GOAL:g} {verdict(rounds)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
