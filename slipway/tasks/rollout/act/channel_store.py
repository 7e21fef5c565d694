"""Reads and swaps a model's channel in the object store."""

import random
from collections.abc import Callable

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.store.object_store import LostRaceError, ObjectStore
from slipway.tasks.contracts.base import canonical_json, read_contract_json
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel

ATTEMPTS = 40
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0


class ChannelStore:
    """channels/<name>.json, changed only by compare-and-swap."""

    def __init__(self, store: ObjectStore, layout: Layout, name: str, clock: Clock) -> None:
        self._store, self._uri, self._name, self._clock = store, layout.channel(name), name, clock

    def read(self) -> Channel:
        """The channel; an empty one before the first promotion."""
        return self._read()[0]

    def swap(self, change: Callable[[Channel], Channel]) -> Channel:
        """Apply a pure change; when another writer was faster, apply it again to that writer's channel.

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

    def _read(self) -> tuple[Channel, str | None]:
        document = self._store.read_with_etag(self._uri)
        if document is None:
            return Channel(name=self._name), None
        return read_contract_json(Channel, document[0], self._uri), document[1]
