"""A Runtime over an engine whose answers are coroutines: they live in an event loop of their own thread."""

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from generation.runtime import Progress, Sampling

if TYPE_CHECKING:
    from concurrent.futures import Future

WAIT_S = 0.01
"""How long a step waits for tokens, and a new request for being admitted while the engine gives none."""


COMPLETE = {"stop": "stop", "repetition": "stop", "length": "length"}
"""Ends of a whole answer, as engines call them and as a Progress does. Others are `error`, `abort`, `timeout`."""


def end_of(reason: object) -> tuple[str, str]:
    """The finish reason and the failure of a Progress, one of them empty, by what an engine calls the end."""
    known = COMPLETE.get(str(reason), "")
    return known, "" if known else f"the engine ended the answer: {reason}. Ask again."


class AsyncRuntime(ABC):
    """Base of such runtimes; a kind adds how its engine answers."""

    def __init__(self) -> None:
        """Start the loop."""
        self.loop = asyncio.new_event_loop()
        self._followed: dict[int, Future[None]] = {}
        self._arrived: queue.Queue[Progress | Exception] = queue.Queue()
        threading.Thread(target=self.loop.run_forever, name="engine", daemon=True).start()

    @abstractmethod
    def answer(self, number: int, prompt: Sequence[int], sampling: Sampling) -> AsyncIterator[Progress]:
        """What the engine makes for one request; closed early when the client has gone.

        Raises:
            Exception: the engine failed for everybody. What fails for this request alone is a Progress.
        """

    def add(self, number: int, prompt: Sequence[int], sampling: Sampling) -> None:
        """Have the loop follow its answer."""
        answer = self._follow(self.answer(number, prompt, sampling))
        self._followed[number] = following = asyncio.run_coroutine_threadsafe(answer, self.loop)
        following.add_done_callback(lambda _: self._followed.pop(number, None))

    def step(self) -> list[Progress]:
        """What has arrived since the last one."""
        found = []
        with suppress(queue.Empty):
            found.append(self._arrived.get(timeout=WAIT_S))
            while True:
                found.append(self._arrived.get_nowait())
        if failures := [each for each in found if isinstance(each, Exception)]:
            raise failures[0]
        return [each for each in found if not isinstance(each, Exception)]

    def cancel(self, number: int) -> None:
        """Whatever arrives of it, nobody looks at it any more."""
        if followed := self._followed.get(number):
            followed.cancel()

    def has_work(self) -> bool:
        """Whether a request runs, or something of one was not taken yet."""
        return bool(self._followed) or not self._arrived.empty()

    def fail(self, error: Exception) -> None:
        """Have the next step raise this: the engine failed."""
        self._arrived.put(error)

    async def _follow(self, answer: AsyncIterator[Progress]) -> None:
        try:
            async for progress in answer:
                self._arrived.put(progress)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread that steps must raise it
            self.fail(error)
