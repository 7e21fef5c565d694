"""Reads and swaps a model's channel in the object store."""

from collections.abc import Callable

from tasks.adapters.object_store import LostRaceError, ObjectStore
from tasks.contracts.artifact import Layout
from tasks.contracts.base import canonical_json, read_contract_json
from tasks.contracts.channel import Channel
from tasks.contracts.errors import UnavailableError

ATTEMPTS = 5


class ChannelStore:
    """channels/<name>.json, changed by compare-and-swap alone."""

    def __init__(self, store: ObjectStore, layout: Layout, name: str) -> None:
        self._store, self._uri, self._name = store, layout.channel(name), name

    def read(self) -> Channel:
        """The channel; an empty one before the first promotion."""
        return self._read()[0]

    def swap(self, change: Callable[[Channel], Channel]) -> Channel:
        """Apply a pure change; it is applied anew to what another writer made meanwhile.

        Raises:
            UnavailableError: others changed it again and again.
        """
        for _ in range(ATTEMPTS):
            before, etag = self._read()
            after = change(before)
            if after == before:
                return before
            try:
                self._store.put_if(self._uri, canonical_json(after.model_dump(mode="json")), etag=etag)
            except LostRaceError:
                continue
            return after
        raise UnavailableError(f"{self._uri} was changed by others {ATTEMPTS} times in a row. Retry.")

    def _read(self) -> tuple[Channel, str | None]:
        found = self._store.read_with_etag(self._uri)
        if found is None:
            return Channel(name=self._name), None
        return read_contract_json(Channel, found[0], self._uri), found[1]
