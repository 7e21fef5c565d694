"""The folder in which the steps of one run keep what they recorded."""

from dataclasses import dataclass
from typing import Any

from slipway.tasks.adapters.store.object_store import NotFoundError, ObjectStore
from slipway.tasks.contracts.base import canonical_json


@dataclass(frozen=True)
class EvidenceFolder:
    """The evidence of one run of a release. UnavailableError: the object store does not answer."""

    store: ObjectStore
    uri: str

    def write(self, name: str, document: Any) -> str:
        """Write a JSON document; return its address."""
        return self.write_bytes(name, canonical_json(document))

    def write_bytes(self, name: str, data: bytes, content_type: str = "application/json") -> str:
        """Write a file; return its address."""
        uri = f"{self.uri}/{name}"
        self.store.put_bytes(uri, data, content_type=content_type)
        return uri

    def read(self, name: str) -> bytes:
        """A file's bytes; empty where there is none."""
        try:
            return self.store.read_bytes(f"{self.uri}/{name}")
        except NotFoundError:
            return b""
