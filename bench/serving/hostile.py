"""`python -m bench.serving.hostile`: requests of strangers to a real front and engine, beside clients in peace.

Serves the demo's model with its front and OpenAI's API, and sends 20,000 requests, another seed each time: of
bench.serving.strangers and, one of eight, of bench.serving.callers. `--seed` repeats those of a run. Steady clients ask
one question meanwhile; their p99 beside the attack is compared with their p99 in quiet, and with that beside as many
clients that send ordinary requests, in rounds that take turns. With `--host` the model is a live one, whose processes
cannot be seen from here.

`--table` sends the requests of bench.serving.attacks one after the other instead, each of which once stopped a server.

Exit 1 if an answer was wrong (a status of 500, no answer, or one later than the deadline), a steady client failed, or a
process ended. The goal of p99 is a result.
"""

import argparse
import http.client
import json
import os
import platform
import secrets
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import quantiles
from typing import Self

from bench.cpu import descendants
from bench.pod import ADDRESS, FRONT, pod
from bench.serving.attacks import ATTACKS, REPORTED, Attack
from bench.serving.callers import Caller, call
from bench.serving.sending import DEADLINE_S, Outcome, Target, send
from bench.serving.strangers import CHAT, QUESTION, Stranger

GOAL = 1.5
REQUESTS, ROUND = 20_000, 1000
STRANGERS, STEADY = 3, 3
QUIET_S = 5.0
"""Before each round."""
ORDINARY = 10
"""Ordinary requests of a round are the round's divided by this."""
CALLS_OF = 8
PAUSE_S = 0.1
"""A steady client waits so long between an answer and its next question."""
NICE = 10
"""Strangers have machines of their own: here their work gives way to the server's."""
LASTING = (b"engine_process", b"triton_python_backend_stub")
"""Processes below Triton that no request may end; others are made again for each few requests."""
QUIET, BESIDE_ORDINARY, BESIDE_STRANGERS = "quiet", "ordinary", "strangers"


class Steady:
    """Clients that ask one question again and again; `with` ends them.

    The seconds of an answer count for the phase in which it was asked for.
    """

    def __init__(self, target: Target, clients: int = STEADY) -> None:
        self.phase = QUIET
        self.seconds: dict[str, list[float]] = {QUIET: [], BESIDE_ORDINARY: [], BESIDE_STRANGERS: []}
        self.failures: list[str] = []
        self._target, self._over = target, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        self._answer = ""

    def __enter__(self) -> Self:
        connection = self._connect()
        self._answer = self._once(connection)
        connection.close()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def p99(self, phase: str) -> float:
        """Seconds; 0 without enough answers."""
        return quantiles(self.seconds[phase], n=100)[-1] if len(self.seconds[phase]) > 1 else 0.0

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._target.host, self._target.port, timeout=DEADLINE_S)

    def _once(self, connection: http.client.HTTPConnection) -> str:
        messages = [{"role": "user", "content": QUESTION}]
        body = json.dumps({"model": self._target.model, "messages": messages, "temperature": 0})
        connection.request("POST", CHAT, body, {"Content-Type": "application/json"})
        text = connection.getresponse().read()
        return str(json.loads(text)["choices"][0]["message"]["content"])

    def _ask(self) -> None:
        connection = self._connect()
        while not self._over.wait(PAUSE_S):
            phase, began = self.phase, time.monotonic()
            try:
                text = self._once(connection)
            except Exception as error:  # noqa: BLE001 - to a client every error is a failed request
                text = repr(error)
                connection.close()
            self.seconds[phase].append(time.monotonic() - began)
            if text != self._answer:
                self.failures.append(f"{phase}: {text}")
        connection.close()


@dataclass
class Report:
    """What came back, and what should not have."""

    statuses: Counter[int | str] = field(default_factory=Counter)
    longest_s: float = 0.0
    wrong: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count it, and print what is wrong with it."""
        self.statuses[outcome.status] += 1
        self.longest_s = max(self.longest_s, outcome.seconds)
        if outcome.complaint:
            self.wrong.append(outcome)
            print(f"WRONG {outcome}", flush=True)

    def __str__(self) -> str:
        counts = ", ".join(f"{status or 'closed'}: {count}" for status, count in sorted(self.statuses.items(), key=str))
        return f"{counts}; the longest {self.longest_s:.1f} s; {len(self.wrong)} wrong"


def hostile(target: Target, seed: int, number: int) -> Outcome:
    """Send the request of this number; one of CALLS_OF is a call over gRPC where its port is known."""
    if target.grpc_port and number % CALLS_OF == 0:
        return call(target, Caller(f"{seed}/{number}", target.model).call())
    return send(target, Stranger(f"{seed}/{number}", target.model).request())


def ordinary(target: Target, seed: int, number: int) -> Outcome:
    """Send an ordinary one."""
    return send(target, Stranger(f"{seed}/{number}", target.model).ordinary())


def attack(executor: Executor, target: Target, seed: int, count: int, steady: Steady) -> Report:
    """Send them all in rounds, and tell the steady clients what phase it is."""
    report = Report()
    for begin in range(0, count, ROUND):
        numbers = range(begin, min(begin + ROUND, count))
        steady.phase = QUIET
        time.sleep(QUIET_S)
        steady.phase = BESIDE_ORDINARY
        for outcome in executor.map(partial(ordinary, target, seed), numbers[::ORDINARY]):
            if outcome.complaint:
                report.add(outcome)
        steady.phase = BESIDE_STRANGERS
        for outcome in executor.map(partial(hostile, target, seed), numbers):
            report.add(outcome)
        print(f"{numbers.stop} requests, load {os.getloadavg()[0]:.1f}: {report}", flush=True)
    return report


@contextmanager
def own_pod(folder: Path) -> Iterator[dict[str, int]]:
    """Serve the demo's model, and yield the processes that must last by name."""
    from bench.serving.serving import DEMO, NAME, make_repository  # noqa: PLC0415 - not where only a front is attacked

    make_repository(folder, DEMO)
    with pod(folder / "pod", {NAME: None}, openai=()) as started:
        yield {name: process.pid for name, process in started.items()}


def lasting(pids: Mapping[str, int]) -> dict[int, bytes]:
    """Processes of the pod that no request may end, with their command lines; without those that have ended."""
    found = {}
    for pid in [*pids.values(), *(descendants(pids["triton"]) if pids else [])]:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if command and (pid in pids.values() or any(each in command for each in LASTING)):
            found[pid] = command
    return found


def main() -> int:
    """Attack, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.serving.hostile", description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="another one each time")
    parser.add_argument("--strangers", type=int, default=STRANGERS, help="requests under way at once")
    parser.add_argument("--host", help="HOST:PORT of a live model's front")
    parser.add_argument("--grpc-port", type=int, help="of the live model's front; without it HTTP alone is attacked")
    parser.add_argument("--model", default="demo", help="its name")
    parser.add_argument("--table", action="store_true", help="the requests that once stopped a server, one by one")
    arguments = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; seed {arguments.seed}", flush=True
    )
    if arguments.host:
        host, _, port = arguments.host.rpartition(":")
        return run(arguments, Target(host, int(port), arguments.model, arguments.grpc_port), {})
    with tempfile.TemporaryDirectory() as folder, own_pod(Path(folder)) as pids:
        return run(arguments, Target(ADDRESS, FRONT["http"], "demo", FRONT["grpc"]), pids)


def run(arguments: argparse.Namespace, target: Target, pids: Mapping[str, int]) -> int:
    """1 if something went wrong."""
    before, began = lasting(pids), time.monotonic()
    with (
        Steady(target) as steady,
        ProcessPoolExecutor(arguments.strangers, get_context("spawn"), os.nice, (NICE,)) as executor,
    ):
        if arguments.table:
            report = table(target, steady)
        else:
            report = attack(executor, target, arguments.seed, arguments.requests, steady)
    ended = [command for pid, command in before.items() if lasting(pids).get(pid) != command]
    print(f"{report.statuses.total()} requests in {time.monotonic() - began:.0f} s: {report}")
    print(f"{len(before)} processes of the pod, {len(ended)} ended: {ended}" if pids else "a pod of others")
    print(peace(steady))
    return 1 if report.wrong or ended or steady.failures else 0


def table(target: Target, steady: Steady) -> Report:
    """Send each attack once, and print its status and seconds."""
    report = Report()
    time.sleep(3 * QUIET_S)
    steady.phase = BESIDE_STRANGERS
    print("| request | status | seconds |\n|---|---|---|")
    for each in (*ATTACKS, *REPORTED):
        outcomes = [sent(each, target) for _ in range(each.times)]
        statuses = sorted({outcome.status or "closed" for outcome in outcomes}, key=str)
        told = f"[{each.name}]({each.report})" if each.report else each.name
        times = f", {each.times} times" if each.times > 1 else ""
        seconds = max(outcome.seconds for outcome in outcomes)
        print(f"| {told}{times} | {', '.join(map(str, statuses))} | {seconds:.2f} |", flush=True)
        for outcome in outcomes:
            report.add(outcome)
    return report


def sent(attack: Attack, target: Target) -> Outcome:
    """Send an attack once; it is wrong as well where its status is none of those that are right."""
    outcome = send(target, attack.request(target.model))
    if outcome.complaint or outcome.status in attack.expected:
        return outcome
    return replace(outcome, complaint=f"status {outcome.status}, expected {sorted(attack.expected)}")


def peace(steady: Steady) -> str:
    """What the steady clients saw."""
    quiet, attacked = steady.p99(QUIET), steady.p99(BESIDE_STRANGERS)
    beside = [f"beside strangers {attacked * 1000:.0f} ms"]
    if steady.seconds[BESIDE_ORDINARY]:
        beside.insert(0, f"beside ordinary requests {steady.p99(BESIDE_ORDINARY) * 1000:.0f} ms")
    ratio = attacked / quiet if quiet else float("inf")
    answers = sum(map(len, steady.seconds.values()))
    return (
        f"steady clients: {answers} answers, {len(steady.failures)} failed {steady.failures[:3]}; p99 in quiet "
        f"{quiet * 1000:.0f} ms, {', '.join(beside)}: {ratio:.2f} of quiet, goal {GOAL} "
        f"{'met' if ratio <= GOAL else 'missed'}"
    )


if __name__ == "__main__":
    sys.exit(main())
