"""Continuous batching around any Runtime: who runs, who waits, and how it all ends.

One thread owns the runtime; delivery.py gives out what it makes in another. Requests of any time join the running batch
as soon as a slot is free; a client that has gone frees its slot; a failure of the runtime fails everyone at once
instead of leaving them waiting.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable

from generation.requests.question import Job
from generation.running.delivery import CANCELLED, Delivery, Reply, Request
from generation.runtime import Progress, Runtime, Tokenizer

GIVE_UP_S = 2.0
"""How long the threads may take to tell clients whose requests were not finished in time."""


class StoppedError(Exception):
    """The scheduler takes no requests any more."""


class Scheduler:
    """Runs jobs in at most `slots` slots. Every job that was submitted gets an end: an answer or a failure."""

    def __init__(
        self, runtime: Runtime, tokenizer: Tokenizer, *, slots: int, on_failure: Callable[[Exception], None]
    ) -> None:
        """`on_failure` is called once, from the scheduler's thread, after the runtime raised and everyone was told."""
        self._runtime, self._tokenizer, self._slots, self._on_failure = runtime, tokenizer, slots, on_failure
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._arrived: deque[Request] = deque()
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Request] = {}
        self._closing = self._abandoned = self._woken = False
        self._delivery = Delivery(tokenizer, self._clients, self.wake)
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def submit(self, job: Job, reply: Reply) -> None:
        """Take a job; its answer comes through `reply`, from another thread.

        Raises:
            StoppedError: it was closed, or its runtime failed.
        """
        split = self._tokenizer.split(job.prompt, thinks=job.sampling.thinks)
        with self._changed:
            if self._closing:
                raise StoppedError(
                    "the model is stopping and takes no requests; another replica will answer. Ask again."
                )
            self._arrived.append(Request(job, reply, split))
            self._changed.notify()

    def wake(self) -> None:
        """Find out at once what went wrong: the runtime's next step or the delivery's check says it.

        Else an idle model would find out with its next request.
        """
        with self._changed:
            self._woken = True
            self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Take no more jobs, finish the ones there are, and return; what is left after `timeout_s` fails."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        self._abandoned = True
        self._thread.join(2 * GIVE_UP_S)

    def _run(self) -> None:
        try:
            while self._has_more():
                self._delivery.check()
                self._drop_cancelled()
                self._admit()
                self._deliver(self._runtime.step())
        except Exception as error:  # noqa: BLE001 - whatever a vendor's runtime raises, nobody may be left waiting
            self._fail_all(
                f"the engine failed and the model stops: {str(error)[:256]}. See the server's log. Ask again."
            )
            self._on_failure(error)
        else:
            self._fail_all("the model stopped before the answer was complete. Ask again.")

    def _has_more(self) -> bool:
        """Wait for something to do; False when it is time to end."""
        with self._changed:
            busy = self._running or self._waiting or self._runtime.has_work()
            while not (busy or self._arrived or self._closing or self._woken):
                self._changed.wait()
            self._woken = False
            self._waiting.extend(self._arrived)
            self._arrived.clear()
            return not self._abandoned and bool(self._running or self._waiting or not self._closing)

    def _clients(self) -> list[Request]:
        """Those who may leave, for the delivery's thread."""
        with self._changed:
            return [*self._running.values(), *self._waiting]

    def _drop_cancelled(self) -> None:
        gone = [number for number, request in self._running.items() if request.gone]
        left = {request for request in self._waiting if request.gone}
        if not (gone or left):
            return
        for number in gone:
            self._runtime.cancel(number)
        with self._changed:
            dropped = [*(self._running.pop(number) for number in gone), *left]
            # not `gone`, which the delivery's thread may have set meanwhile: the next look takes those out
            self._waiting = deque(request for request in self._waiting if request not in left)
        self._delivery.put((request, Progress(0, (), CANCELLED)) for request in dropped)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            number = next(self._numbers)
            with self._changed:
                request = self._running[number] = self._waiting.popleft()
            self._runtime.add(number, request.job.prompt, request.job.sampling)

    def _deliver(self, steps: Iterable[Progress]) -> None:
        """Hand on what is due.

        An answer that a stop word may end is read at once, for its slot may be free then. So is the beginning of an
        answer: its client waits for that most of all, and on a busy machine another thread may have to wait for a CPU.
        """
        due: list[tuple[Request, Progress]] = []
        read_now: dict[Request, list[Progress]] = {}
        for step in steps:
            if (request := self._running.get(step.number)) is None:
                continue
            if step.finish_reason or step.failure:
                with self._changed:
                    del self._running[step.number]
            elif not request.is_read:
                request.add(step)
                continue
            if request.job.stop_words or not request.tokens:
                read_now.setdefault(request, []).append(step)
            else:
                due.append((request, step))
        if due:
            self._delivery.put(due)
        if read_now:
            stopped = self._delivery.give(read_now)
            for number in [number for number, request in self._running.items() if request in stopped]:
                self._end(number)

    def _end(self, number: int) -> None:
        """Free the slot of a request whose answer ends at a stop word, of which the runtime does not know."""
        with self._changed:
            del self._running[number]
        self._runtime.cancel(number)

    def _fail_all(self, message: str) -> None:
        with self._changed:
            self._closing = True
            everyone = [*self._running.values(), *self._waiting, *self._arrived]
            self._running, self._waiting, self._arrived = {}, deque(), deque()
        self._delivery.fail(everyone, message)
        self._delivery.close(GIVE_UP_S)
