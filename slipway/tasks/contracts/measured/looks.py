"""When a load test is looked at, what error each look may have, and the blocks that its intervals resample. Pure.

A benchmark with `max_requests` goes on until every line is decided. Each look at the data could be wrong, so the looks
share one error: the one at n of `max_requests` requests may have used n / max_requests of it, which is the spending
function of Lan and DeMets (1983) with the power 1 of Kim and DeMets (1987). What looks spend is added up (Bonferroni),
so it holds however dependent they are. The times of looks follow from the spec alone: they are at `requests`, twice as
many, and so on.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from slipway.tasks.contracts.measured.gate import LINE_ERROR
from slipway.tasks.contracts.measured.measurement import RequestRow
from slipway.tasks.contracts.spec.gate import Benchmark
from slipway.tasks.contracts.spec.load_level import LoadLevel

MAX_BLOCKS = 32
TURNS = 8
"""Turns of a target among its `requests`, where they are long enough."""
WAVES = 4
"""Requests of each client in a turn at least, so that its beginning and end weigh little."""
TURN_S = 5.0
"""Seconds of a turn at a request rate at least, for the same reason."""


@dataclass(frozen=True)
class Look:
    """A decision after `requests` rows of each target, which may be wrong with probability `error`."""

    requests: int
    error: float


def looks(settings: Benchmark, measured: int) -> Iterator[Look]:
    """Every look at a level of which `measured` rows of each target exist.

    The last one is at all of them, where the time budget ended between two looks.
    """
    if settings.max_requests is None:
        yield Look(measured, LINE_ERROR)
        return
    spent = 0.0
    for count in (*(count for count in planned(settings) if count < measured), measured):
        share = min(1.0, count / settings.max_requests)
        yield Look(count, LINE_ERROR * (share - spent))
        spent = share


def planned(settings: Benchmark) -> list[int]:
    """Requests of each target at each look."""
    counts = [settings.requests]
    while counts[-1] < (settings.max_requests or 0):
        counts.append(min(counts[-1] * 2, settings.max_requests or 0))
    return counts


def turn_requests(settings: Benchmark, level: LoadLevel) -> int:
    """How many requests a turn of one target has while it takes turns with another."""
    steady = WAVES * (level.concurrency or 0) or math.ceil(TURN_S * (level.request_rate or 0))
    return min(settings.requests, max(math.ceil(settings.requests / TURNS), steady))


def longest_s(settings: Benchmark, level: LoadLevel, requests: int) -> float:
    """Seconds that so many requests to one target take at most: every one of them until its time limit."""
    if level.concurrency is not None:
        return (requests / level.concurrency + 1) * settings.request_timeout_s
    assert level.request_rate is not None
    turns = math.ceil(requests / turn_requests(settings, level))
    # the sum of exponential times is below twice its mean, plus ten times one of them, in all but 1 of 10^4 cases
    return (2 * requests + 10) / level.request_rate + turns * settings.request_timeout_s


def in_order(rows: Sequence[RequestRow]) -> list[RequestRow]:
    """The rows of one target at one level in the order in which they were sent."""
    return sorted(rows, key=lambda row: (row.batch, row.asked_s))


T = TypeVar("T")


def blocks(rows: Sequence[T], count: int) -> list[Sequence[T]]:
    """Cut ordered rows into `count` blocks of consecutive ones, whose sizes differ by one at most."""
    edges = [len(rows) * number // count for number in range(count + 1)]
    return [rows[first:last] for first, last in itertools.pairwise(edges)]


def block_count(requests: int) -> int:
    """The square root, the usual rule for batch means (Fishman 1978), up to MAX_BLOCKS; 0 without requests."""
    return min(MAX_BLOCKS, round(math.sqrt(requests)))
