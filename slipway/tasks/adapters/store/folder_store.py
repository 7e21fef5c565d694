"""Objects as files below a folder, by `file:///folder/key`, for a back-up. One process at a time may use it."""

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from typing_extensions import override

from slipway.tasks.adapters.store.digests import digests_of_file, new
from slipway.tasks.adapters.store.object_store import (
    ByteSource,
    LostRaceError,
    NotFoundError,
    ObjectStore,
    Progress,
    StoredObject,
    Upload,
    check_whole,
)
from slipway.tasks.adapters.store.parts import PART_BYTES
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.stored.artifact import Algorithm

SCHEME = "file://"
PARTIAL = ".partial"
READ_BYTES = 2**20


class FolderStore(ObjectStore):
    """Files below one folder. A file appears complete or not at all; its digest is computed from its bytes.

    Whoever packed the folder may have put links into it, to files of this machine: no link is followed.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is made when something is written to it.

        Raises:
            InputError: it cannot be a folder.
        """
        try:
            self._folder = folder.resolve()
        except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
            raise InputError(f"{folder} is not a folder", found=error, remedy="Name another place.") from error

    @property
    def root(self) -> str:
        """The root of a layout in this folder."""
        return f"{SCHEME}{self._folder}"

    @override
    def read_bytes(self, uri: str) -> bytes:
        content = self.read_with_etag(uri)
        if content is None:
            raise NotFoundError(f"{uri} does not exist", remedy="Check the folder, or export again.")
        return content[0]

    @override
    def read_with_etag(self, uri: str) -> tuple[bytes, str] | None:
        path = self._path(uri)
        if not path.is_file():
            return None
        check_whole(uri, path.stat().st_size)
        data = path.read_bytes()
        return data, hashlib.sha256(data).hexdigest()

    @override
    def put_bytes(self, uri: str, data: bytes, *, content_type: str = "application/json") -> None:
        path = self._path(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}{PARTIAL}")
        partial.write_bytes(data)
        partial.replace(path)

    @override
    def put_if(self, uri: str, data: bytes, *, etag: str | None) -> str:
        current = self.read_with_etag(uri)
        if (current[1] if current else None) != etag:
            raise LostRaceError(f"{uri} was changed by another process", remedy="Run one command at a time.")
        self.put_bytes(uri, data)
        return hashlib.sha256(data).hexdigest()

    @override
    def exists(self, uri: str) -> bool:
        return self._path(uri).is_file()

    @override
    def describe(self, uri: str) -> StoredObject | None:
        path = self._path(uri)
        if not path.is_file():
            return None
        return self._described(path, *digests_of_file(path, "sha256"))

    @override
    def list(self, prefix_uri: str) -> Iterator[StoredObject]:
        for path in sorted(self._folder.rglob("*")):
            uri = f"{SCHEME}{path}"
            if uri.startswith(prefix_uri) and not path.name.endswith(PARTIAL) and self._path(uri).is_file():
                yield self._described(path, None)

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
        source = self._path(uri)
        if not source.is_file():
            raise NotFoundError(f"{uri} does not exist", remedy="Check the folder, or export again.")
        if source.stat().st_size != size_bytes:
            return None
        digest = new(algorithm)
        with source.open("rb") as stream, path.open("wb") as file:
            while chunk := stream.read(READ_BYTES):
                file.write(chunk)
                digest.update(chunk)
                if progress:
                    progress(len(chunk))
        return digest.hexdigest()

    @override
    def read_into(self, uri: str, view: memoryview, *, offset: int, size_bytes: int, etag: str | None) -> None:
        path = self._path(uri)
        if not path.is_file():
            raise NotFoundError(f"{uri} does not exist", remedy="Check the folder, or export again.")
        stored = self._described(path, None)
        if stored.size_bytes != size_bytes or etag not in {None, stored.etag}:
            raise LostRaceError(f"{uri} changed after it was listed", remedy="Read it again.")
        with path.open("rb") as file:
            file.seek(offset)
            file.readinto(view)

    @override
    def put_file(self, path: Path, uri: str, progress: Progress | None = None, *, sha256: str | None = None) -> None:
        target = self._path(uri)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}{PARTIAL}")
        shutil.copyfile(path, partial)
        partial.replace(target)
        if progress:
            progress(target.stat().st_size)

    @override
    def put_stream(self, source: ByteSource, uri: str) -> str:
        target = self._path(uri)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}{PARTIAL}")
        try:
            with partial.open("wb") as file:
                for offset in range(0, source.size_bytes, PART_BYTES):
                    part = memoryview(bytearray(min(PART_BYTES, source.size_bytes - offset)))
                    source.read_into(offset, part)
                    source.digest(part)
                    file.write(part)
            sha256 = source.verified()
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        return sha256

    @override
    def copy(self, source: StoredObject, target_uri: str) -> None:
        path = self._path(source.uri)
        if not path.is_file():
            raise NotFoundError(f"{source.uri} does not exist", remedy="Check the folder, or export again.")
        if self._described(path, None).etag != source.etag:
            raise UnavailableError(f"{source.uri} changed while it was copied", remedy="Run the command again.")
        self.put_file(path, target_uri)

    @override
    def delete(self, uris: Sequence[str]) -> Mapping[str, str]:
        for uri in uris:
            self._path(uri).unlink(missing_ok=True)
        return {}

    @override
    def uploads(self, prefix_uri: str) -> Iterator[Upload]:
        return iter(())

    @override
    def abort(self, upload: Upload) -> None:
        pass

    @override
    def link(self, uri: str) -> str:
        return self._path(uri).as_uri()

    @override
    def is_versioned(self, uri: str) -> bool | None:
        return False

    def _described(self, path: Path, sha256: str | None) -> StoredObject:
        facts = path.stat()
        modified_at = datetime.fromtimestamp(facts.st_mtime, UTC)
        return StoredObject(f"{SCHEME}{path}", facts.st_size, f"{facts.st_mtime_ns}", modified_at, sha256)

    def _path(self, uri: str) -> Path:
        path = Path(uri.removeprefix(SCHEME))
        if not uri.startswith(SCHEME) or ".." in path.parts or not path.is_relative_to(self._folder):
            raise InputError("invalid address of a file", found=repr(uri), expected=f"{self.root}/<key>")
        if path.resolve() != path or (path.exists() and not (path.is_file() or path.is_dir())):
            raise InputError(
                f"{path} is a link, or not a file",
                expected="files and folders alone",
                remedy="Remove it, or export again.",
            )
        return path
