"""Several actors over one store in memory, one operation at a time, in an order that the test chooses."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.fakes.clock import ManualClock
from tests.support.waiting import PATIENCE_S


class CrashedError(BaseException):
    """The actor's process was killed."""


@dataclass
class Actor:
    """One process: `work` runs in a thread of its own over a store that waits for its turns."""

    work: Callable
    dies_after: int | None = None
    """Operations after which it is killed."""
    operations: int = 0
    error: BaseException | None = None
    _turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _waits: threading.Event = field(default_factory=threading.Event)
    _one: threading.Lock = field(default_factory=threading.Lock)
    _ended: bool = False

    def start(self, store, clock):
        def run():
            try:
                self.work(SteppedStore(store, self), SteppedClock(clock, self))
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.error = error
            self._ended = True
            self._waits.set()

        threading.Thread(target=run, daemon=True).start()
        self._waits.wait()

    @property
    def is_alive(self):
        return not self._ended

    def step(self):
        """Let it do one operation, up to the next one or its end."""
        self._waits.clear()
        self._turn.release()
        assert self._waits.wait(PATIENCE_S), "an actor waits for something else than its turn"

    def operation(self, call):
        with self._one:
            if self.operations == self.dies_after:
                raise CrashedError
            self._waits.set()
            self._turn.acquire()
            self.operations += 1
            return call()


class SteppedStore:
    """A store, or a cluster: each call is one operation. A list is read whole when it begins, as one page of S3's is."""

    def __init__(self, store, actor):
        self._store, self._actor = store, actor

    def __getattr__(self, name):
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def call(*arguments, **options):
            def operation():
                result = method(*arguments, **options)
                return iter([*result]) if name in {"list", "uploads"} else result

            return self._actor.operation(operation)

        return call


class SteppedClock(ManualClock):
    """All actors have the same time; to sleep is an operation."""

    def __init__(self, shared, actor):
        self._shared, self._actor = shared, actor

    def now(self):
        return self._shared.now()

    def monotonic(self):
        return self._shared.monotonic()

    def sleep(self, seconds):
        self._actor.operation(lambda: self._shared.sleep(seconds))


def play(actors: Sequence[Actor], order: Sequence[int], store, clock):
    """Let the actors take turns in `order`, which names an actor for each operation; then each goes on to its end."""
    for actor in actors:
        actor.start(store, clock)
    for number in order:
        if actors[number].is_alive:
            actors[number].step()
    # round-robin: one that waits for another must not wait for ever
    while alive := [actor for actor in actors if actor.is_alive]:
        for actor in alive:
            if actor.is_alive:
                actor.step()
