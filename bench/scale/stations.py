"""Queues with servers, and how busy they were: the parts of which the simulation is made."""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

BIN_S = 600.0
"""The load of ten minutes is looked at together: shorter bursts only wait."""
GONE = "gone"
Process = Generator[simpy.Event, Any, Any]


@dataclass
class Meter:
    """Demand by bins of time: busy seconds, or requests."""

    bins: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, at_s: float, amount: float) -> None:
        """Count `amount` at one time."""
        self.bins[int(at_s // BIN_S)] += amount

    def spread(self, start_s: float, end_s: float, rate: float = 1.0) -> None:
        """Count `rate` for each second from `start_s` to `end_s`."""
        first, last = int(start_s // BIN_S), int(end_s // BIN_S)
        if first == last:
            self.bins[first] += (end_s - start_s) * rate
            return
        self.bins[first] += ((first + 1) * BIN_S - start_s) * rate
        for between in range(first + 1, last):
            self.bins[between] += BIN_S * rate
        self.bins[last] += (end_s - last * BIN_S) * rate

    def peak(self, per_s: float) -> float:
        """The share of a capacity of `per_s` that the busiest bin used."""
        return max(self.bins.values(), default=0.0) / (BIN_S * per_s)

    def mean(self, per_s: float, over_s: float) -> float:
        """The share of a capacity of `per_s` that was used in the first `over_s` seconds, whole bins."""
        return sum(amount for at, amount in self.bins.items() if at * BIN_S < over_s) / (over_s * per_s)


class Line:
    """One queue before equal servers; who comes first goes first, and stays for a time known when he comes."""

    def __init__(self, env: simpy.Environment, servers: int) -> None:
        self.env, self.servers, self.meter = env, servers, Meter()
        self._free_at = [0.0] * servers

    def enter(self, seconds: float) -> float:
        """Join the queue now for a service of `seconds`; returns how long the wait for a server is."""
        now: float = self.env.now
        start = max(now, self._free_at[0])
        heapq.heapreplace(self._free_at, start + seconds)
        self.meter.spread(start, start + seconds)
        return start - now


class Station:
    """One queue before equal servers that are kept for an unknown time; the lowest priority goes first.

    SimPy's PriorityResource sorts its whole queue for each request, which 10,000 of them at midnight make too slow.
    """

    def __init__(self, env: simpy.Environment, servers: int) -> None:
        self.env, self.servers, self.meter = env, servers, Meter()
        self._free = servers
        self._queue: list[tuple[int, int, simpy.Event]] = []
        self._came = itertools.count()

    def take(self, priority: int = 0, patience_s: float | None = None) -> Process:
        """Wait for a server; returns when it was taken, or None after `patience_s`, and the wait in seconds."""
        began = self.env.now
        if self._free:
            self._free -= 1
            return began, 0.0
        turn = self.env.event()
        heapq.heappush(self._queue, (priority, next(self._came), turn))
        if patience_s is None:
            yield turn
        else:
            yield turn | self.env.timeout(patience_s)
            if not turn.triggered:
                turn.succeed(GONE)
                return None, self.env.now - began
        return self.env.now, self.env.now - began

    def give(self, since_s: float) -> None:
        """Give back the server that was taken at `since_s`."""
        self.meter.spread(since_s, self.env.now)
        while self._queue:
            turn = heapq.heappop(self._queue)[2]
            if not turn.triggered:
                turn.succeed()
                return
        self._free += 1
