"""Requests that are sent at their times, whatever became of those before, and the row that each leaves."""

import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from typing import TypeVar

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.triton.triton import Chunk
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.measured.measurement import RequestRow

R = TypeVar("R")

MAX_IN_FLIGHT = 1024
"""Requests of an open loop that wait for answers at once, as at the highest concurrency. One above that is sent late,
which its row shows."""


def arrivals(rate: float, turn: int) -> Iterator[float]:
    """Seconds from the start to each arrival of an endless Poisson process of `rate` per second; the same each time."""
    dice = random.Random(f"{rate} {turn}")  # noqa: S311 - times of requests, no secret
    return itertools.accumulate(dice.expovariate(rate) for _ in itertools.count())


def submit(
    offsets_s: Iterable[float],
    send: Callable[[int, float], R],
    pool: Executor,
    clock: Clock,
    *,
    stopped: threading.Event | None = None,
    began_s: float | None = None,
) -> list[Future[R]]:
    """Submit each request at its time, until there are no more or `stopped` is set.

    Args:
        offsets_s: seconds to each request.
        send: sends a request, given its number and the monotonic second at which it was due.
        pool: has a thread for every request in flight.
        clock: times the requests.
        stopped: ends the loop at once, also between two requests.
        began_s: the monotonic second from which offsets count; now, unless it is given.
    """
    began_s, sent = clock.monotonic() if began_s is None else began_s, []
    for number, offset_s in enumerate(offsets_s):
        wait_s = max(0.0, began_s + offset_s - clock.monotonic())
        if stopped is None:
            clock.sleep(wait_s)
        elif stopped.wait(wait_s):
            break
        sent.append(pool.submit(send, number, began_s + offset_s))
    return sent


def timed(
    stream: Callable[[], Iterable[Chunk]],
    row: Mapping[str, object],
    clock: Clock,
    *,
    began_s: float,
    due_s: float | None,
    count: Callable[[str], int] = lambda _: 0,
) -> RequestRow:
    """Send a request and record what became of it.

    Args:
        stream: sends it, and yields pieces of its answer.
        row: what the caller knows of it.
        clock: times it.
        began_s: the monotonic second from which the row's times count.
        due_s: the monotonic second at which it was due, if it was due at a time.
        count: counts the tokens of the answer and its thoughts.
    """
    due = None if due_s is None else due_s - began_s
    row = {**row, "start_s": clock.monotonic() - began_s, "due_s": due}
    try:
        chunks = [chunk for chunk in stream() if chunk.generated]
    except PipelineError as error:
        end_s = clock.monotonic() - began_s
        return RequestRow.model_validate({**row, "ok": False, "error": str(error), "last_token_s": end_s})
    times = {
        "first_token_s": chunks[0].at_s - began_s if chunks else None,
        "last_token_s": chunks[-1].at_s - began_s if chunks else None,
        "chunks": len(chunks),
    }
    tokens = count("".join(chunk.generated for chunk in chunks))
    ended = {"ok": bool(chunks), "error": "" if chunks else "the answer was empty", "output_tokens": tokens}
    return RequestRow.model_validate({**row, **times, **ended})
