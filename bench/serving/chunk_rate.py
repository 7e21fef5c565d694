"""`python -m bench.serving.chunk_rate`: how many chunks a second the load generator can stamp in time.

A stand-in for Triton in a process of its own streams at a known pace and remembers when it sent what
(slipway/tasks/adapters/load/paced_server.py). The load test of step benchmark measures it with more and more clients.
It is wrong where a percentile that it reports is further from what the stand-in sent than WITHIN of it and than a
floor, which is what loopback and the wake-up of a thread take. The stand-in's own rate is printed beside the planned
one: where it is lower, the stand-in was the limit, and the load test is compared with what was sent all the same. Time
for which the stand-in's gRPC held back a chunk that was handed to it counts against the load test.

One rate is what step benchmark takes for its limit: TRUSTED of what it measures when it starts
(slipway/tasks/adapters/load/chunk_rate.py). The goal is that this rate and the measured ones below it are right.
"""

import argparse
import json
import multiprocessing
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.chunk_rate import TRUSTED, loopback_chunks_per_s
from slipway.tasks.adapters.load.load_test import Capacity, LoadTest
from slipway.tasks.adapters.load.paced_server import LOOPBACK, MODEL, PacedServer, Sent
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.tokens import TokenCounter
from slipway.tasks.contracts.measured.measurement import percentile, values
from slipway.tasks.contracts.spec.gate import Benchmark
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.engines.cpus import cpu_quota

CLIENTS = 128
RATES = (1600, 3200, 6400, 8000, 9600, 12800)
"""Planned chunks per second of all clients."""
FIRST_S = 0.2
ANSWER_S, SPREAD = 1.5, 0.5
"""Seconds that an answer streams on average, and by what share of it answers differ, so that clients do not begin
together."""
WITHIN = 0.03
FLOOR_MS = {"ttft_ms": 3.0, "itl_ms": 0.3}
PERCENTS = (50, 99)
LOOPBACKS = 5
COUNTER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"token": 0}, "unk_token": "token"},
}
"""A tokenizer.json whose tokens are those of the stand-in."""


@dataclass(frozen=True)
class Measured:
    """One rate: what was planned, sent and reported; percentiles are by metric and percent, in milliseconds."""

    planned: float
    achieved: float
    sent: dict[tuple[str, int], float]
    reported: dict[tuple[str, int], float]
    busy: float

    @property
    def wrong(self) -> list[str]:
        """The percentiles that are further from what was sent than allowed."""
        return [
            f"{metric} p{percent}"
            for (metric, percent), sent in self.sent.items()
            if abs(self.reported[metric, percent] - sent) > max(WITHIN * sent, FLOOR_MS[metric])
        ]


def main() -> int:
    """Print a line for each rate, and the highest one that was reported as it was sent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--rates", type=int, nargs="*", default=RATES, help="beside the limit: chunks/s of all clients")
    parser.add_argument("--processes", type=int, default=1, help="processes of the load generator")
    arguments = parser.parse_args()
    loopback = median(loopback_chunks_per_s() for _ in range(LOOPBACKS))
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; {arguments.clients} clients,")
    print(f"processes: {arguments.processes}; sent / reported in milliseconds; more than {WITHIN:.0%} apart and than")
    print(f"{FLOOR_MS['ttft_ms']:g} ms (TTFT) or {FLOOR_MS['itl_ms']:g} ms (ITL) is wrong", flush=True)
    limit = round(TRUSTED * loopback * arguments.processes)
    right: list[Measured] = []
    was_wrong = False
    for rate in sorted({*arguments.rates, limit}):
        found = measure(rate, arguments.clients, arguments.processes)
        print(line(found), flush=True)
        was_wrong = was_wrong or bool(found.wrong)
        right += [] if was_wrong else [found]
    highest = max((found.achieved for found in right), default=0.0)
    met = any(found.planned == limit and found.achieved >= (1 - WITHIN) * limit for found in right)
    print(
        f"right up to {highest:.0f} chunks/s{'' if was_wrong else ' or more'}; a process sends {loopback:.0f} to itself"
    )
    print(f"goal right up to the limit that step benchmark assumes here, {limit}: {'met' if met else 'missed'}")
    return 0


def line(found: Measured) -> str:
    """One rate as text."""
    shown = [
        f"{metric.removesuffix('_ms').upper()} p{percent} {sent:.1f} / {found.reported[metric, percent]:.1f}"
        for (metric, percent), sent in found.sent.items()
    ]
    verdict = f"wrong: {', '.join(found.wrong)}" if found.wrong else "right"
    start = f"{found.planned:6.0f} chunks/s planned, {found.achieved:6.0f} sent"
    return f"{start}: {', '.join(shown)}; computed {found.busy:.0%}; {verdict}"


def measure(rate: float, clients: int, processes: int) -> Measured:
    """Run the load test at one rate."""
    gap_s = clients / rate
    tokens = max(8, round(ANSWER_S / gap_s))
    with stand_in(FIRST_S, gap_s, clients) as (port, taken):
        settings = Benchmark(concurrency=(clients,), requests=3 * clients, warmup=clients, max_tokens=tokens)
        counter = TokenCounter(json.dumps(COUNTER).encode())
        lengths = [round(tokens * (1 + SPREAD * (7 * number % 17 - 8) / 8)) for number in range(17)]
        asked = [GenerateRequest("question", length) for length in lengths]
        # every process gets clients, because none can stamp as much as one chunk in a million seconds
        capacity = Capacity(processes, 1e-6) if processes > 1 else Capacity(cpu_quota())
        level, address = LoadLevel(concurrency=clients), ServiceAddress(LOOPBACK, {"http": 1, "grpc": port})
        with LoadTest(MODEL, settings, asked, counter, SystemClock(), capacity=capacity) as load:
            rows = load.level(level, {"candidate": address}, decided=lambda _: True)
        sent = taken()[clients:]
    if failed := [row.error for row in rows if not row.ok]:
        raise SystemExit(f"{len(failed)} of {len(rows)} requests failed: {failed[0]}")
    reported = percentiles({metric: values(rows, metric) for metric in FLOOR_MS})
    return Measured(rate, achieved(sent, clients), of_sent(sent), reported, load.busy(level) or 0.0)


def achieved(sent: Sequence[Sent], clients: int) -> float:
    """Chunks per second while every client's answer streams."""
    return clients / median((each.last_s - each.first_s) / (each.chunks - 1) for each in sent)


def of_sent(sent: Sequence[Sent]) -> dict[tuple[str, int], float]:
    """The percentiles of what the stand-in sent."""
    ttft_ms = [(each.first_s - each.asked_s) * 1e3 for each in sent]
    itl_ms = [(each.last_s - each.first_s) / (each.chunks - 1) * 1e3 for each in sent]
    return percentiles({"ttft_ms": ttft_ms, "itl_ms": itl_ms})


def percentiles(of: Mapping[str, Sequence[float]]) -> dict[tuple[str, int], float]:
    """Those that are compared, by metric and percent."""
    return {(metric, percent): percentile(of[metric], percent) or 0.0 for metric in of for percent in PERCENTS}


@contextmanager
def stand_in(first_s: float, gap_s: float, clients: int) -> Iterator[tuple[int, Callable[[], list[Sent]]]]:
    """Run the stand-in until the block ends: its port, and what it has sent since it was asked last."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, first_s, gap_s, clients), daemon=True)
    process.start()
    there.close()

    def taken() -> list[Sent]:
        here.send(None)
        sent: list[Sent] = here.recv()
        return sent

    try:
        yield here.recv(), taken
    finally:
        process.kill()
        process.join()
        here.close()


def serve(pipe: Connection, first_s: float, gap_s: float, clients: int) -> None:
    """Be the stand-in until the benchmark ends this process; whatever comes through `pipe` asks for what was sent."""
    with PacedServer(first_s=first_s, gap_s=gap_s, clients=clients) as server:
        pipe.send(server.port)
        while pipe.recv() is None:
            pipe.send(server.taken())


if __name__ == "__main__":
    sys.exit(main())
