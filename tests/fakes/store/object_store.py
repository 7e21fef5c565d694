"""Objects in memory. What it promises is what tests/fakes/store/object_store_contract.py asks of it and of S3."""

import hashlib
import threading
from datetime import UTC, datetime

from slipway.tasks.adapters.store.digests import digests_of_file
from slipway.tasks.adapters.store.object_store import LostRaceError, NotFoundError, StoredObject, Upload
from slipway.tasks.contracts.errors import InputError, UnavailableError


class MemoryObjectStore:
    """See tasks.adapters.store.object_store.ObjectStore. `written` lists every URI in the order of writing."""

    def __init__(self, now=lambda: datetime.now(UTC)):
        """`now` is the store's own clock."""
        self.objects: dict[str, tuple[bytes, str | None]] = {}
        self.modified: dict[str, datetime] = {}
        self.unfinished: dict[str, Upload] = {}
        self.protected: set[str] = set()
        """Endings of URIs that may not be deleted."""
        self.versioned: bool | None = False
        self._now = now
        self.written: list[str] = []
        self.unavailable: set[str] = set()
        """Endings of URIs that nothing can be written to."""
        self._lock = threading.Lock()

    def read_bytes(self, uri):
        found = self.read_with_etag(uri)
        if found is None:
            raise NotFoundError(f"{uri}: no such object")
        return found[0]

    def read_with_etag(self, uri):
        found = self.objects.get(uri)
        return None if found is None else (found[0], _etag(found[0]))

    def put_bytes(self, uri, data, *, content_type="application/json"):
        self._write(uri, data)

    def put_if(self, uri, data, *, etag):
        with self._lock:
            found = self.objects.get(uri)
            if (None if found is None else _etag(found[0])) != etag:
                raise LostRaceError(f"{uri} was written by somebody else")
            self._write(uri, data)
        return _etag(data)

    def exists(self, uri):
        return uri in self.objects

    def describe(self, uri):
        found = self.objects.get(uri)
        return None if found is None else StoredObject(uri, len(found[0]), _etag(found[0]), self._at(uri), found[1])

    def list(self, prefix_uri):
        _check(prefix_uri)
        for uri in sorted(self.objects):
            if uri.startswith(prefix_uri):
                data, _ = self.objects[uri]
                yield StoredObject(uri, len(data), _etag(data), self._at(uri))

    def get_file(self, uri, path, size_bytes, progress=None, *, algorithm="sha256"):
        data = self.read_bytes(uri)
        if len(data) != size_bytes:
            return None
        begun = path.read_bytes() if path.exists() else b""
        path.write_bytes(begun + data[len(begun) :])
        if progress:
            progress(len(data))
        return digests_of_file(path, algorithm)[0]

    def read_into(self, uri, view, *, offset, size_bytes, etag):
        data, current = self.read_with_etag(uri) or (None, None)
        if data is None:
            raise NotFoundError(f"{uri}: no such object")
        if len(data) != size_bytes or etag not in {None, current}:
            raise LostRaceError(f"{uri} was written by somebody else")
        view[:] = data[offset : offset + len(view)]

    def put_file(self, path, uri, progress=None, *, sha256=None):
        data = path.read_bytes()
        self._write(uri, data, sha256)
        if progress:
            progress(len(data))

    def put_stream(self, source, uri):
        data = bytearray(source.size_bytes)
        source.read_into(0, memoryview(data))
        source.digest(memoryview(data))
        sha256 = source.verified()
        self._write(uri, bytes(data), source.sha256)
        return sha256

    def copy(self, source, target_uri):
        if source.uri not in self.objects:
            raise NotFoundError(f"{source.uri}: no such object")
        if self.describe(source.uri).etag != source.etag:
            raise UnavailableError(f"{source.uri} changed while it was copied")
        self._write(target_uri, *self.objects[source.uri])

    def delete(self, uris):
        refused = {uri: "AccessDenied" for uri in uris if any(uri.endswith(ending) for ending in self.protected)}
        for uri in uris:
            if uri not in refused:
                self.objects.pop(uri, None)
        return refused

    def uploads(self, prefix_uri):
        _check(prefix_uri)
        for upload in list(self.unfinished.values()):
            if upload.uri.startswith(prefix_uri):
                yield upload

    def abort(self, upload):
        self.unfinished.pop(upload.upload_id, None)

    def link(self, uri):
        return f"https://console.example/{uri.removeprefix('s3://')}"

    def is_versioned(self, uri):
        return self.versioned

    def begin_upload(self, uri):
        """Begin an upload in parts as a process does that is then killed."""
        upload = Upload(uri, f"upload-{len(self.unfinished)}", self._now())
        self.unfinished[upload.upload_id] = upload

    def _at(self, uri):
        # tests may put an object into `objects` themselves
        return self.modified.get(uri) or self._now()

    def _write(self, uri, data, sha256=None):
        if any(uri.endswith(ending) for ending in self.unavailable):
            raise UnavailableError(f"{uri}: the store is away")
        self.objects[uri] = (data, sha256)
        self.modified[uri] = self._now()
        self.written.append(uri)


def _check(uri):
    """Refuse what slipway/tasks/adapters/store/s3.py refuses: an address without a key, such as a whole bucket."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if not (scheme and bucket and key):
        raise InputError("invalid address of an object", found=repr(uri), expected="s3://<bucket>/<key>")


def _etag(data):
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
