"""The clients of a load test, or those of one of its processes: a turn's requests in, a row for each out."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load import open_loop
from slipway.tasks.adapters.load.connecting import connect
from slipway.tasks.adapters.load.open_loop import MAX_IN_FLIGHT, timed
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.tokens import TokenCounter
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.measured.measurement import RequestRow, Target
from slipway.tasks.contracts.spec.load_level import LoadLevel

START_GAP_S = 0.001
"""Seconds between the first requests of two clients of a closed loop. To send one takes this process about as long, so
those of clients that all began at once would wait for each other, and that would be measured as the server's time."""

Take = Callable[[], int | None]
"""Gives the number of the next request of a turn, which only one client gets; None when there is none left."""


@dataclass(frozen=True)
class Turn:
    """Requests to one target at one level, without those of others in between."""

    level: LoadLevel
    batch: int
    target: Target
    address: ServiceAddress
    requests: int

    @property
    def pair(self) -> int:
        """Both targets of a pair of turns get the same requests, at the same times."""
        return self.batch // 2


@dataclass(frozen=True)
class Share:
    """A process's part of the clients, or of the arrivals of an open loop: every `of`th, from `index` on."""

    index: int = 0
    of: int = 1


@dataclass(frozen=True)
class Load:
    """What every turn has in common.

    Attributes:
        model: the model's name.
        requests: sent in turn, again and again.
        timeout_s: how long an answer may take.
        counter: counts the tokens of answers.
        began_s: the monotonic second from which rows count.
    """

    model: str
    requests: Sequence[GenerateRequest]
    timeout_s: float
    counter: TokenCounter
    began_s: float


class LoadClients:
    """Clients in threads of this process."""

    def __init__(self, load: Load, clock: Clock, connect: Callable[[ServiceAddress], TritonClient] = connect) -> None:
        self._load, self._clock, self._connect = load, clock, connect

    def play(self, turn: Turn, take: Take, start: Callable[[], float], share: Share = Share()) -> list[RequestRow]:
        """Send this process's share of a turn's requests, over one connection.

        Args:
            turn: the turn.
            take: gives clients of a closed loop their requests.
            start: returns the monotonic second from which arrivals of an open loop count; called once connected.
            share: which clients or arrivals are this process's.
        """
        with self._connect(turn.address) as client:
            with contextlib.suppress(PipelineError):  # the first request meets the same error and has a row for it
                client.prepare(self._load.model, self._load.timeout_s)
            starts_s = start()
            if turn.level.request_rate is None:
                return self._closed_loop(turn, client, take, share)
            offsets_s = arrivals(turn.level.request_rate, turn.requests, turn.pair)
            return self._open_loop(turn, client, list(enumerate(offsets_s))[share.index :: share.of], starts_s)

    def _closed_loop(self, turn: Turn, client: TritonClient, take: Take, share: Share) -> list[RequestRow]:
        def client_loop(number: int) -> list[RequestRow]:
            self._clock.sleep(number * START_GAP_S)
            return [self._request(turn, client, request) for request in iter(take, None)]

        numbers = range(turn.level.concurrency or 1)[share.index :: share.of]
        with ThreadPoolExecutor(max(1, len(numbers))) as pool:
            return [row for rows in pool.map(client_loop, numbers) for row in rows]

    def _open_loop(
        self, turn: Turn, client: TritonClient, due: Sequence[tuple[int, float]], starts_s: float
    ) -> list[RequestRow]:
        """Send each request at its time, whatever became of those before."""

        def deliver(place: int, due_s: float) -> RequestRow:
            return self._request(turn, client, due[place][0], due_s)

        with ThreadPoolExecutor(MAX_IN_FLIGHT) as pool:
            sent = open_loop.submit([offset_s for _, offset_s in due], deliver, pool, self._clock, began_s=starts_s)
            return [each.result() for each in sent]

    def _request(self, turn: Turn, client: TritonClient, number: int, due_s: float | None = None) -> RequestRow:
        load = self._load
        request = load.requests[(turn.pair * turn.requests + number) % len(load.requests)]
        row = {
            "target": turn.target,
            "concurrency": turn.level.concurrency,
            "request_rate": turn.level.request_rate,
            "batch": turn.batch,
            "prompt": request.prompt,
        }
        return timed(
            lambda: client.record(load.model, request, load.timeout_s),
            row,
            self._clock,
            began_s=load.began_s,
            due_s=due_s,
            count=load.counter.count,
        )


def numbers_of(requests: int) -> Take:
    """The numbers of so many requests, for clients of one process."""
    numbers, lock = iter(range(requests)), threading.Lock()

    def take() -> int | None:
        with lock:
            return next(numbers, None)

    return take


def arrivals(rate: float, requests: int, turn: int) -> list[float]:
    """Seconds from the start of a turn to each arrival of a Poisson process of `rate` per second; the same each time.

    Args:
        rate: arrivals per second on average.
        requests: how many.
        turn: turns of another number have other times.
    """
    return list(itertools.islice(open_loop.arrivals(rate, turn), requests))
