"""Whose request the model takes next, and how many of one client may wait. For the one thread of an event loop."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from slipway.tasks.serving.openai_api.http.errors import ApiError, unavailable

AHEAD_OF = 4
"""The model has one request more, for each so many that it answers at once: no slot waits for this process."""


class Turns:
    """Clients wait for their own requests, and hardly for those of others.

    The model's next turn is that of the client with the fewest requests at it. A client may have as many requests here
    as it leaves room for those of others (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking
    6:2, 1998): a single one has half of the room, and one that comes later still finds some. Requests of no client, as
    where the site has no keys, are let through.
    """

    def __init__(self, at_once: int, room: int) -> None:
        """`at_once` is how many requests the model answers together, `room` how many may be here."""
        self._most, self._room = at_once + max(1, at_once // AHEAD_OF), room
        self._here: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextmanager
    def room(self, client: str) -> Iterator[None]:
        """Have room for a request within the block.

        Raises:
            ApiError: the client has its share already; status 503.
        """
        if not client:
            yield
            return
        if self._here.total() >= self._most and self._here[client] >= self._room - self._here.total():
            raise self._full(client)
        with _counted(self._here, client):
            yield

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn at the model, and have it within the block."""
        if not client:
            yield
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(mine)
        self._give()
        try:
            await mine
            yield
        finally:
            if mine.cancelled():
                self._drop(client, mine)
            else:
                _less(self._running, client)
            self._give()

    def _full(self, client: str) -> ApiError:
        return unavailable(
            f"the key {client} has {self._here[client]} requests here, its share of the room. Ask again."
        )

    def _give(self) -> None:
        """Give what turns there are. Of clients with as many requests at the model, it is who had none for longest."""
        while self._waiting and self._running.total() < self._most:
            client = min(self._waiting, key=self._running.__getitem__)
            queue = self._waiting.pop(client)
            mine = queue.popleft()
            if queue:
                self._waiting[client] = queue
            if not mine.cancelled():
                self._running[client] += 1
                mine.set_result(None)

    def _drop(self, client: str, mine: "asyncio.Future[None]") -> None:
        """Take a request out of its client's queue, if it is still there."""
        queue = self._waiting.get(client, deque())
        if mine in queue:
            queue.remove(mine)
            if not queue:
                del self._waiting[client]


@contextmanager
def _counted(counts: Counter[str], client: str) -> Iterator[None]:
    counts[client] += 1
    try:
        yield
    finally:
        _less(counts, client)


def _less(counts: Counter[str], client: str) -> None:
    """One less; of tokens' subjects an issuer may have any number, so nobody is kept who has none."""
    counts[client] -= 1
    if not counts[client]:
        del counts[client]
