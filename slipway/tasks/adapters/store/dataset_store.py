"""Copies of pinned datasets in the object store, so that no step after plan needs the Hub or a token for them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slipway.tasks.adapters.store.object_store import ObjectStore
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.plan import DatasetFile


@dataclass(frozen=True)
class DatasetStore:
    """The stored datasets of a site."""

    store: ObjectStore
    layout: Layout

    def keep(self, dataset: DatasetFile, download: Callable[[DatasetFile], list[dict[str, Any]]]) -> None:
        """Store a dataset that is not stored yet; `download` brings it from the Hub."""
        uri = self.layout.dataset(dataset.file.digest)
        if not self.store.exists(uri):
            self.store.put_bytes(uri, canonical_json(download(dataset)))

    def read(self, dataset: DatasetFile) -> list[dict[str, Any]]:
        """The objects of a dataset that plan stored, one for each line."""
        lines: list[dict[str, Any]] = json.loads(self.store.read_bytes(self.layout.dataset(dataset.file.digest)))
        return lines
