"""The load generator: closed loops of clients and open loops at a rate, against one or two Services in turns."""

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tasks.adapters import open_loop
from tasks.adapters.clock import Clock, cpu_seconds
from tasks.adapters.generate_request import GenerateRequest
from tasks.adapters.open_loop import MAX_IN_FLIGHT, timed
from tasks.adapters.service_object import ServiceAddress
from tasks.adapters.tokens import TokenCounter
from tasks.adapters.triton import TritonClient
from tasks.contracts import looks
from tasks.contracts.gate_spec import Benchmark
from tasks.contracts.load_level import LoadLevel
from tasks.contracts.measurement import RequestRow, Target


def _connect(address: ServiceAddress) -> TritonClient:
    return TritonClient(address.host, address.ports["http"], address.ports["grpc"])


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
        cpus: float,
        connect: Callable[[ServiceAddress], TritonClient] = _connect,
        cpu_s: Callable[[], float] = cpu_seconds,
    ) -> None:
        """Prepare the load.

        Args:
            model: the model's name.
            settings: the spec's.
            requests: sent in turn, again and again.
            counter: counts the tokens of answers.
            clock: times the requests.
            cpus: CPUs that this process may use.
            connect: connects a client.
            cpu_s: CPU time that this process has used so far.
        """
        self._model, self._settings, self._requests = model, settings, requests
        self._counter, self._clock, self._connect = counter, clock, connect
        # one thread at a time runs Python, so more than one CPU does not help
        self._cpu_s, self._cpus = cpu_s, min(1.0, cpus)
        self._began_s = clock.monotonic()
        self._turns_s: dict[LoadLevel, list[tuple[float, float]]] = {}

    def level(
        self, level: LoadLevel, targets: dict[Target, ServiceAddress], decided: Callable[[list[RequestRow]], bool]
    ) -> list[RequestRow]:
        """Measure one level, without the warm-up requests: `settings.requests` rows for each target.

        With `settings.max_requests` more turns follow until `decided` of all rows so far, or the time budget ends.
        """
        for target, address in targets.items():
            self._turn(level, 0, target, address, self._settings.warmup)
        rows: list[RequestRow] = []
        batches = itertools.count()
        counts = looks.planned(self._settings)
        for before, count in itertools.pairwise([0, *counts]):
            for turns in self._turns(level, count - before, targets):
                if before and self._clock.monotonic() - self._began_s > self._settings.budget_s:
                    return rows
                for target, requests in turns:
                    before_s = self._cpu_s(), self._clock.monotonic()
                    rows += self._turn(level, next(batches), target, targets[target], requests)
                    took_s = self._cpu_s() - before_s[0], self._clock.monotonic() - before_s[1]
                    self._turns_s.setdefault(level, []).append(took_s)
            if count != counts[-1] and decided(rows):
                return rows
        return rows

    def busy(self, level: LoadLevel) -> float | None:
        """Share of a level's turns in which this process computed: at 1 it was the limit, not the server."""
        turns = self._turns_s.get(level, [])
        lasted_s = sum(each[1] for each in turns)
        return sum(each[0] for each in turns) / lasted_s / self._cpus if lasted_s else None

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

    def _turn(
        self, level: LoadLevel, batch: int, target: Target, address: ServiceAddress, requests: int
    ) -> list[RequestRow]:
        pair = batch // 2  # both targets of a pair of turns get the same requests, at the same times
        first = pair * requests
        sent = [self._requests[number % len(self._requests)] for number in range(first, first + requests)]
        of_turn = {"target": target, "concurrency": level.concurrency, "request_rate": level.request_rate}

        def send(client: TritonClient, request: GenerateRequest, due_s: float | None = None) -> RequestRow:
            return self._request(client, request, {**of_turn, "batch": batch, "prompt": request.prompt}, due_s)

        if level.request_rate is None:
            return self._closed_loop(level.concurrency or 1, address, sent, send)
        return self._open_loop(arrivals(level.request_rate, requests, pair), address, sent, send)

    def _closed_loop(
        self,
        concurrency: int,
        address: ServiceAddress,
        requests: Sequence[GenerateRequest],
        send: Callable[[TritonClient, GenerateRequest], RequestRow],
    ) -> list[RequestRow]:
        waiting, lock = iter(requests), threading.Lock()

        def remaining() -> Iterator[GenerateRequest]:
            while True:
                with lock:
                    request = next(waiting, None)
                if request is None:
                    return
                yield request

        def client_loop(_: int) -> list[RequestRow]:
            with self._connect(address) as client:
                return [send(client, request) for request in remaining()]

        with ThreadPoolExecutor(concurrency) as pool:
            return [row for rows in pool.map(client_loop, range(concurrency)) for row in rows]

    def _open_loop(
        self,
        offsets_s: Sequence[float],
        address: ServiceAddress,
        requests: Sequence[GenerateRequest],
        send: Callable[[TritonClient, GenerateRequest, float], RequestRow],
    ) -> list[RequestRow]:
        """Send each request at its time, by a client that waits for no answer, or by a new one."""
        idle: queue.LifoQueue[TritonClient] = queue.LifoQueue()
        opened = contextlib.ExitStack()  # entered by one thread at a time: the pool's, under the lock
        lock = threading.Lock()

        def client() -> TritonClient:
            with contextlib.suppress(queue.Empty):
                return idle.get_nowait()
            with lock:
                return opened.enter_context(self._connect(address))

        def deliver(number: int, due_s: float) -> RequestRow:
            mine = client()
            try:
                return send(mine, requests[number], due_s)
            finally:
                idle.put(mine)

        with opened, ThreadPoolExecutor(MAX_IN_FLIGHT) as pool:
            sent = open_loop.submit(offsets_s, deliver, pool, self._clock)
            return [each.result() for each in sent]

    def _request(
        self, client: TritonClient, request: GenerateRequest, row: dict[str, object], due_s: float | None
    ) -> RequestRow:
        timeout_s = self._settings.request_timeout_s
        return timed(
            lambda: client.stream(self._model, request, timeout_s),
            row,
            self._clock,
            began_s=self._began_s,
            due_s=due_s,
            count=self._counter.count,
        )


def arrivals(rate: float, requests: int, turn: int) -> list[float]:
    """Seconds from the start of a turn to each arrival of a Poisson process of `rate` per second; the same each time.

    Args:
        rate: arrivals per second on average.
        requests: how many.
        turn: turns of another number have other times.
    """
    return list(itertools.islice(open_loop.arrivals(rate, turn), requests))
