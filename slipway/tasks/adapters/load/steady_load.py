"""Requests at a steady rate to a model's live Service, in the background, while something else changes it."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from typing_extensions import override

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.connecting import connect
from slipway.tasks.adapters.load.open_loop import MAX_IN_FLIGHT, arrivals, submit, timed
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.measured.measurement import RequestRow


class BackgroundLoad(Protocol):
    """Load that somebody else's work is measured under."""

    def start(self, address: ServiceAddress) -> None:
        """Begin to send requests to `address`."""

    def stop(self) -> list[RequestRow]:
        """Send no more, wait for the answers, and return a row for each request, in the order they were due."""

    def abandon(self) -> None:
        """Send no more, and wait for nothing."""


def _connect(address: ServiceAddress) -> TritonClient:
    return connect(address, own_connection=True)


class SteadyLoad(BackgroundLoad):
    """An open loop with Poisson arrivals. Each request has a connection of its own, which any pod may get."""

    def __init__(
        self,
        model: str,
        rate: float,
        requests: Sequence[GenerateRequest],
        timeout_s: float,
        clock: Clock,
        *,
        connect: Callable[[ServiceAddress], TritonClient] = _connect,
    ) -> None:
        """Prepare the load.

        Args:
            model: the model's name.
            rate: requests per second on average.
            requests: sent in turn, again and again.
            timeout_s: how long an answer may take.
            clock: times the requests; rows have its monotonic seconds.
            connect: connects a client for one request.
        """
        self._model, self._rate, self._requests, self._timeout_s = model, rate, requests, timeout_s
        self._clock, self._connect = clock, connect
        self._stopped = threading.Event()
        self._rows: list[RequestRow] = []
        self._problem: Exception | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._thread: threading.Thread | None = None

    @override
    def start(self, address: ServiceAddress) -> None:
        self._pool = ThreadPoolExecutor(MAX_IN_FLIGHT)
        self._thread = threading.Thread(target=self._send_all, args=(address, self._pool), daemon=True)
        self._thread.start()

    @override
    def stop(self) -> list[RequestRow]:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        if self._problem is not None:
            raise PipelineError(f"the drill's load could not be sent: {self._problem!r}") from self._problem
        return self._rows

    @override
    def abandon(self) -> None:
        self._stopped.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _send_all(self, address: ServiceAddress, pool: ThreadPoolExecutor) -> None:
        def send(number: int, due_s: float) -> RequestRow:
            request = self._requests[number % len(self._requests)]
            row = {"target": "live", "request_rate": self._rate, "batch": 0, "prompt": request.prompt}
            with self._connect(address) as client:
                return timed(
                    lambda: client.stream(self._model, request, self._timeout_s),
                    row,
                    self._clock,
                    began_s=0.0,
                    due_s=due_s,
                )

        try:
            sent = submit(arrivals(self._rate, 0), send, pool, self._clock, stopped=self._stopped)
            self._rows = [each.result() for each in sent]
        except Exception as error:  # noqa: BLE001 - raised by stop, in the thread that asks
            # a pool that was shut down takes no more
            self._problem = None if isinstance(error, RuntimeError) and self._stopped.is_set() else error
        finally:
            pool.shutdown(wait=False)
