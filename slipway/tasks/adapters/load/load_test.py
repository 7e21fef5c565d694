"""The load generator: closed loops of clients and open loops at a rate, against one or two Services in turns."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from slipway.tasks.adapters.clock import Clock, cpu_seconds
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.connecting import connect
from slipway.tasks.adapters.load.load_clients import Load, LoadClients, Turn, numbers_of
from slipway.tasks.adapters.load.load_processes import LoadProcesses
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.tokens import TokenCounter
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.measured import looks
from slipway.tasks.contracts.measured.measurement import RequestRow, Target
from slipway.tasks.contracts.spec.gate import Benchmark
from slipway.tasks.contracts.spec.load_level import LoadLevel

AIM = 0.5
"""Share of the chunks that a process can stamp which it is expected to get, where CPUs allow it."""
MOST_PROCESSES = 8
"""A process takes about 55 MB, and a pod without a limit of CPUs sees all of its node's."""
CHUNKS_PER_S = 100.0
"""Chunks that are expected for a client, or for a request of an open loop, where no warm-up request told."""


@dataclass(frozen=True)
class Capacity:
    """What the load generator has to run on.

    Attributes:
        cpus: CPUs that this process may use, with those that it starts.
        chunks_per_s: chunks that a process can stamp as they arrive (slipway/tasks/adapters/load/chunk_rate.py). None:
            not known, so all clients stay in this process.
    """

    cpus: float
    chunks_per_s: float | None = None


class LoadTest:
    """Sends requests and records a row for each; at which levels, and how many, the spec's settings say."""

    def __init__(
        self,
        model: str,
        settings: Benchmark,
        requests: Sequence[GenerateRequest],
        counter: TokenCounter,
        clock: Clock,
        *,
        capacity: Capacity,
        connect: Callable[[ServiceAddress], TritonClient] = connect,
        cpu_s: Callable[[], float] = cpu_seconds,
    ) -> None:
        """Prepare the load.

        Args:
            model: the model's name.
            settings: the spec's.
            requests: sent in turn, again and again.
            counter: counts the tokens of answers.
            clock: times the requests.
            capacity: what the load generator has to run on.
            connect: connects a client.
            cpu_s: CPU time that this process has used so far.
        """
        self._settings, self._clock, self._capacity = settings, clock, capacity
        self._began_s = clock.monotonic()
        self._load = Load(model, requests, settings.request_timeout_s, counter, self._began_s)
        self._here, self._cpu_s = LoadClients(self._load, clock, connect), cpu_s
        self._processes: LoadProcesses | None = None
        self._counts: dict[LoadLevel, int] = {}
        self._turns_s: dict[LoadLevel, list[tuple[float, float]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._in_processes(1)

    def level(
        self, level: LoadLevel, targets: dict[Target, ServiceAddress], decided: Callable[[list[RequestRow]], bool]
    ) -> list[RequestRow]:
        """Measure one level, without the warm-up requests: `settings.requests` rows for each target.

        With `settings.max_requests` more turns follow until `decided` of all rows so far, or the time budget ends.
        """
        self._in_processes(1)
        warm = [
            row
            for target, address in targets.items()
            for row in self._turn(Turn(level, 0, target, address, self._settings.warmup))[0]
        ]
        self._in_processes(processes(level, warm, self._capacity))
        self._counts[level] = self._process_count
        rows: list[RequestRow] = []
        batches = itertools.count()
        counts = looks.planned(self._settings)
        for before, count in itertools.pairwise([0, *counts]):
            for turns in self._turns(level, count - before, targets):
                if before and self._clock.monotonic() - self._began_s > self._settings.budget_s:
                    return rows
                for target, requests in turns:
                    before_s = self._clock.monotonic()
                    more, cpu_s = self._turn(Turn(level, next(batches), target, targets[target], requests))
                    rows += more
                    self._turns_s.setdefault(level, []).append((cpu_s, self._clock.monotonic() - before_s))
            if count != counts[-1] and decided(rows):
                return rows
        return rows

    def busy(self, level: LoadLevel) -> float | None:
        """Share of a level's turns in which the busiest process computed: at 1 it was the limit, not the server."""
        turns = self._turns_s.get(level, [])
        lasted_s = sum(each[1] for each in turns)
        # one thread at a time runs Python, so more than one CPU does not help a process
        cpus = min(1.0, self._capacity.cpus / self.processes(level))
        return sum(each[0] for each in turns) / lasted_s / cpus if lasted_s else None

    def processes(self, level: LoadLevel) -> int:
        """Processes that a level's clients were in."""
        return self._counts.get(level, 1)

    def stamps_per_s(self, level: LoadLevel) -> float | None:
        """Chunks that those processes can stamp as they arrive; None where that was not measured."""
        rate = self._capacity.chunks_per_s
        return None if rate is None else rate * self.processes(level)

    def _turns(
        self, level: LoadLevel, requests: int, targets: dict[Target, ServiceAddress]
    ) -> Iterator[list[tuple[Target, int]]]:
        """Turns of each target, in the order candidate, live, live, candidate, after each of which both are even."""
        order: list[Target] = ["candidate", "live"] if "live" in targets else ["candidate"]
        size = looks.turn_requests(self._settings, level) if "live" in targets else requests
        while requests:
            turn = min(size, requests)
            yield [(target, turn) for target in order]
            requests -= turn
            order.reverse()

    def _turn(self, turn: Turn) -> tuple[list[RequestRow], float]:
        """A turn's rows, and the CPU seconds of the process that used most."""
        if self._processes is not None:
            return self._processes.play(turn)
        before_s = self._cpu_s()
        rows = self._here.play(turn, numbers_of(turn.requests), self._clock.monotonic)
        return rows, self._cpu_s() - before_s

    @property
    def _process_count(self) -> int:
        return 1 if self._processes is None else len(self._processes)

    def _in_processes(self, count: int) -> None:
        """Have the clients of the following turns in so many processes; 1 is this one."""
        if count == self._process_count:
            return
        if self._processes is not None:
            self._processes.close()
        self._processes = LoadProcesses(self._load, count) if count > 1 else None


def processes(level: LoadLevel, warm: Sequence[RequestRow], capacity: Capacity) -> int:
    """In how many processes to have the clients of a level, given the rows of its warm-up requests."""
    if capacity.chunks_per_s is None:
        return 1
    needed = math.ceil(expected_chunks_per_s(level, warm) / (AIM * capacity.chunks_per_s))
    return max(1, min(needed, math.floor(capacity.cpus), MOST_PROCESSES, level.concurrency or needed))


def expected_chunks_per_s(level: LoadLevel, warm: Sequence[RequestRow]) -> float:
    """How many chunks will come to all clients: as many to each as in the warm-up, or as many for each request."""
    answers = [row for row in warm if row.ok and row.chunks]
    if level.request_rate is not None:
        return level.request_rate * (median(row.chunks or 0 for row in answers) if answers else CHUNKS_PER_S)
    assert level.concurrency is not None
    rates = [
        ((row.chunks or 0) - 1) / (row.last_token_s - row.first_token_s)
        for row in answers
        if row.last_token_s is not None and row.first_token_s is not None and row.last_token_s > row.first_token_s
    ]
    return level.concurrency * (median(rates) if rates else CHUNKS_PER_S)
