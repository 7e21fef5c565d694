"""Reads and swaps the documents of a model that several writers change: its channel, and a release's adapters."""

import random
from collections.abc import Callable
from typing import Generic, TypeVar

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.store.object_store import LostRaceError, ObjectStore
from slipway.tasks.contracts.base import Contract, canonical_json, read_contract_json
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel

ATTEMPTS = 40
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
C = TypeVar("C", bound=Contract)


class SwappedDocument(Generic[C]):
    """A document that is changed only by compare-and-swap."""

    def __init__(self, store: ObjectStore, uri: str, empty: C, clock: Clock) -> None:
        """`empty` is what it is before it is first written."""
        self._store, self._uri, self._empty, self._clock = store, uri, empty, clock

    def read(self) -> C:
        """The document as it is now."""
        return self._read()[0]

    def swap(self, change: Callable[[C], C]) -> C:
        """Apply a pure change; when another writer was faster, apply it again to what that writer wrote.

        It pauses between attempts for a random time that grows with every lost race, so that each of many concurrent
        writers gets its turn (full jitter, https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).

        Raises:
            UnavailableError: every attempt lost.
        """
        for attempt in range(ATTEMPTS):
            if attempt:
                longest_s = min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S)
                self._clock.sleep(random.uniform(0.0, longest_s))  # noqa: S311 - spreads writers, hides nothing
            before, etag = self._read()
            after = change(before)
            if after == before:
                return before
            try:
                self._store.put_if(self._uri, canonical_json(after.model_dump(mode="json")), etag=etag)
            except LostRaceError:
                continue
            return after
        raise UnavailableError(
            f"other writers changed {self._uri} {ATTEMPTS} times in a row", remedy="Run the step again."
        )

    def _read(self) -> tuple[C, str | None]:
        document = self._store.read_with_etag(self._uri)
        if document is None:
            return self._empty, None
        return read_contract_json(type(self._empty), document[0], self._uri), document[1]


class ChannelStore(SwappedDocument[Channel]):
    """channels/<name>.json."""

    def __init__(self, store: ObjectStore, layout: Layout, name: str, clock: Clock) -> None:
        super().__init__(store, layout.channel(name), Channel(name=name), clock)
