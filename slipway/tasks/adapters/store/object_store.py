"""Objects by `s3://bucket/key`: the protocol that every store has, and its errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from slipway.tasks.contracts.errors import ConflictError, InputError
from slipway.tasks.contracts.stored.artifact import Algorithm

LARGEST_WHOLE_BYTES = 128 << 20
"""Bytes of what is read whole: documents, and files such as tokenizer.json. Artifacts are read in parts."""
Progress = Callable[[int], None]
"""Called with the bytes transferred since the last call, from several threads."""


class NotFoundError(InputError):
    """There is no such object."""


class DeniedError(InputError):
    """The credentials may not do this."""


class UnsupportedError(InputError):
    """The store does not implement the request."""


class LostRaceError(ConflictError):
    """Another writer changed the object after it was read."""


def check_whole(uri: str, size_bytes: int) -> None:
    """Check that an object may be read whole.

    Raises:
        InputError: it is too large.
    """
    if size_bytes > LARGEST_WHOLE_BYTES:
        raise InputError(
            f"{uri} is too large for what Slipway keeps there",
            found=f"{size_bytes} bytes",
            expected=f"at most {LARGEST_WHOLE_BYTES}",
            remedy="Find out what wrote it, and put back what was there.",
        )


@dataclass(frozen=True)
class StoredObject:
    """An object as the store describes it. `sha256` is the one given to `put_file`; lists never have it."""

    uri: str
    size_bytes: int
    etag: str
    modified_at: datetime
    """When it was written, by the store's clock."""
    sha256: str | None = None


@dataclass(frozen=True)
class Upload:
    """An upload in parts that was neither completed nor aborted. Its parts take space and are in no list of objects."""

    uri: str
    upload_id: str
    began_at: datetime


class ByteSource(Protocol):
    """The bytes of one file that lies elsewhere: read in parts, from several threads, and digested in order."""

    @property
    def size_bytes(self) -> int:
        """Its size."""

    @property
    def sha256(self) -> str | None:
        """The hex digest that its bytes must have; None when it is not known before they are read."""

    @property
    def reads_at_once(self) -> int:
        """How many parts may be read at a time; 1 if they have to be read in order. Known after the first part."""

    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill `view` with the bytes at `offset`."""

    def digest(self, view: memoryview) -> None:
        """Take the next bytes in their order."""

    def verified(self) -> str:
        """Hex sha256 of all bytes. It raises if they are not the right ones; then nothing may be stored."""


class ObjectStore(Protocol):
    """Objects by `s3://bucket/key`.

    Every method raises InputError when the bucket is missing or the credentials are refused, and UnavailableError when
    the store does not answer, is busy, or the credentials have expired.
    """

    def read_bytes(self, uri: str) -> bytes:
        """The object's bytes.

        Raises:
            NotFoundError: there is none.
        """

    def read_with_etag(self, uri: str) -> tuple[bytes, str] | None:
        """The object's bytes and ETag; None when there is none."""

    def put_bytes(self, uri: str, data: bytes, *, content_type: str = "application/json") -> None:
        """Write an object, over what was there."""

    def put_if(self, uri: str, data: bytes, *, etag: str | None) -> str:
        """Write a JSON object only if its ETag is still `etag`, or with None only if it is absent; return the new ETag.

        `data` names its writer or its time: of two writers of the same bytes, both may be told that they were first.

        Raises:
            LostRaceError: another writer was first.
        """

    def exists(self, uri: str) -> bool:
        """Whether there is such an object."""

    def describe(self, uri: str) -> StoredObject | None:
        """Describe an object without reading it; None when there is none."""

    def list(self, prefix_uri: str) -> Iterator[StoredObject]:
        """Every object whose URI starts with `prefix_uri`, in the order of their keys' bytes."""

    def get_file(
        self,
        uri: str,
        path: Path,
        size_bytes: int,
        progress: Progress | None = None,
        *,
        algorithm: Algorithm = "sha256",
    ) -> str | None:
        """Download an object, in parallel parts where one connection is slow, digested on the way, to `path`.

        Bytes that are at `path` already count as its beginning, so that a download that was interrupted continues.

        Returns:
            Hex digest of the file at `path`, by `algorithm`; None if the object has another size than `size_bytes`.

        Raises:
            NotFoundError: there is none.
        """

    def read_into(self, uri: str, view: memoryview, *, offset: int, size_bytes: int, etag: str | None) -> None:
        """Fill `view` with the object's bytes at `offset`.

        Raises:
            NotFoundError: there is none.
            LostRaceError: it has not `size_bytes`, or not the ETag `etag` where one is given.
        """

    def put_file(self, path: Path, uri: str, progress: Progress | None = None, *, sha256: str | None = None) -> None:
        """Upload a file in parallel parts that the store checks. `sha256` is stored as metadata."""

    def put_stream(self, source: ByteSource, uri: str) -> str:
        """Upload what `source` gives, in parallel parts, without writing it to disk; return its hex sha256.

        The object appears only when `source` has verified its bytes.
        """

    def copy(self, source: StoredObject, target_uri: str) -> None:
        """Copy an object within the store, with its sha256.

        Raises:
            NotFoundError: the source is gone.
            UnavailableError: it was written again since it was described.
        """

    def delete(self, uris: Sequence[str]) -> Mapping[str, str]:
        """Delete objects; absent ones count as deleted.

        Returns:
            The store's error code for each object that it did not delete, by URI.
        """

    def uploads(self, prefix_uri: str) -> Iterator[Upload]:
        """Every incomplete upload in parts below `prefix_uri`."""

    def abort(self, upload: Upload) -> None:
        """Abort an incomplete upload and free its parts; one that is complete or gone is left as it is."""

    def link(self, uri: str) -> str:
        """An address at which a person opens the object; one that is signed works for a bounded time."""

    def is_versioned(self, uri: str) -> bool | None:
        """Whether the bucket keeps the versions of deleted objects; None when that may not be read."""
