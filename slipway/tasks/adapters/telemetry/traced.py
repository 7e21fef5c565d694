"""An object store and a Hub whose transfers are spans, with the bytes that they moved."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from slipway.tasks.adapters.store.object_store import ByteSource, ObjectStore, Progress, StoredObject, Upload
from slipway.tasks.adapters.telemetry.tracing import Spans
from slipway.tasks.contracts.stored.artifact import Algorithm
from slipway.tasks.contracts.stored.plan import DatasetFile, HubFile, Source

R = TypeVar("R")
URI, BYTES, REPO, COMMIT = "slipway.uri", "slipway.bytes", "slipway.repo", "slipway.commit"


class TracedObjectStore(ObjectStore):
    """Every request of `store` in a span of its own, but for those that only look."""

    def __init__(self, store: ObjectStore, spans: Spans) -> None:
        self._store, self._spans = store, spans

    @override
    def read_bytes(self, uri: str) -> bytes:
        with self._spans.span("s3.get", {URI: uri}) as attributes:
            data = self._store.read_bytes(uri)
            attributes[BYTES] = len(data)
        return data

    @override
    def read_with_etag(self, uri: str) -> tuple[bytes, str] | None:
        with self._spans.span("s3.get", {URI: uri}) as attributes:
            document = self._store.read_with_etag(uri)
            attributes[BYTES] = len(document[0]) if document else 0
        return document

    @override
    def put_bytes(self, uri: str, data: bytes, *, content_type: str = "application/json") -> None:
        with self._spans.span("s3.put", {URI: uri, BYTES: len(data)}):
            self._store.put_bytes(uri, data, content_type=content_type)

    @override
    def put_if(self, uri: str, data: bytes, *, etag: str | None) -> str:
        with self._spans.span("s3.put", {URI: uri, BYTES: len(data)}):
            return self._store.put_if(uri, data, etag=etag)

    @override
    def exists(self, uri: str) -> bool:
        return self._store.exists(uri)

    @override
    def describe(self, uri: str) -> StoredObject | None:
        return self._store.describe(uri)

    @override
    def list(self, prefix_uri: str) -> Iterator[StoredObject]:
        return self._store.list(prefix_uri)

    @override
    def get_file(
        self,
        uri: str,
        path: Path,
        size_bytes: int,
        progress: Progress | None = None,
        *,
        algorithm: Algorithm = "sha256",
    ) -> str | None:
        with self._spans.span("s3.get", {URI: uri, BYTES: size_bytes}):
            return self._store.get_file(uri, path, size_bytes, progress, algorithm=algorithm)

    @override
    def read_into(self, uri: str, view: memoryview, *, offset: int, size_bytes: int, etag: str | None) -> None:
        with self._spans.span("s3.get", {URI: uri, BYTES: len(view)}):
            self._store.read_into(uri, view, offset=offset, size_bytes=size_bytes, etag=etag)

    @override
    def put_file(self, path: Path, uri: str, progress: Progress | None = None, *, sha256: str | None = None) -> None:
        with self._spans.span("s3.put", {URI: uri, BYTES: path.stat().st_size}):
            self._store.put_file(path, uri, progress, sha256=sha256)

    @override
    def put_stream(self, source: ByteSource, uri: str) -> str:
        with self._spans.span("s3.put", {URI: uri, BYTES: source.size_bytes}):
            return self._store.put_stream(source, uri)

    @override
    def copy(self, source: StoredObject, target_uri: str) -> None:
        with self._spans.span("s3.copy", {URI: target_uri}):
            self._store.copy(source, target_uri)

    @override
    def delete(self, uris: Sequence[str]) -> Mapping[str, str]:
        with self._spans.span("s3.delete", {"slipway.objects": len(uris)}):
            return self._store.delete(uris)

    @override
    def uploads(self, prefix_uri: str) -> Iterator[Upload]:
        return self._store.uploads(prefix_uri)

    @override
    def abort(self, upload: Upload) -> None:
        self._store.abort(upload)

    @override
    def link(self, uri: str) -> str:
        return self._store.link(uri)

    @override
    def is_versioned(self, uri: str) -> bool | None:
        return self._store.is_versioned(uri)


class TracedHub:
    """The Hub, as tasks.adapters.hub.hub.Hub, which is not imported: serving images have no client of it."""

    def __init__(self, hub: Any, spans: Spans) -> None:
        self._hub, self._spans = hub, spans

    def resolve(self, repo: str, revision: str) -> Source:
        """As Hub."""
        with self._spans.span("hub.resolve", {REPO: repo}) as attributes:
            source: Source = self._hub.resolve(repo, revision)
            attributes.update({COMMIT: source.commit, BYTES: source.size_bytes})
        return source

    def pin_dataset(self, uri: str) -> DatasetFile:
        """As Hub."""
        with self._spans.span("hub.pin_dataset"):
            dataset: DatasetFile = self._hub.pin_dataset(uri)
        return dataset

    def commit_of_dataset(self, repo: str) -> str:
        """As Hub."""
        with self._spans.span("hub.commit_of_dataset", {REPO: repo}) as attributes:
            commit: str = self._hub.commit_of_dataset(repo)
            attributes[COMMIT] = commit
        return commit

    def read_file(self, source: Source, path: str) -> bytes:
        """As Hub."""
        with self._spans.span("hub.read_file", {REPO: source.repo, COMMIT: source.commit}) as attributes:
            data: bytes = self._hub.read_file(source, path)
            attributes[BYTES] = len(data)
        return data

    def bring(self, source: Source, file: HubFile, take: Callable[[ByteSource], R], count: Callable[[int], None]) -> R:
        """As Hub."""
        with self._spans.span("hub.download", {REPO: source.repo, COMMIT: source.commit, BYTES: file.size_bytes}):
            taken: R = self._hub.bring(source, file, take, count)
        return taken

    def read_dataset(self, dataset: DatasetFile) -> list[dict[str, Any]]:
        """As Hub."""
        with self._spans.span("hub.read_dataset"):
            lines: list[dict[str, Any]] = self._hub.read_dataset(dataset)
        return lines
