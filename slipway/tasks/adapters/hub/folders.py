"""Models in folders of an object store, for sites without a Hub: what plan saw there, and its files as they were then.

A listing holds no sha256 of an object. Where the folder has SHA256SUMS, as coreutils write it, a file's digest is the
sha256 in it; elsewhere it is the ETag, and every read is made on the condition that the object still has that ETag.
"""

import re
from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from typing_extensions import override

from slipway.tasks.adapters.hub.folder_files import (
    MAX_FILES,
    QUOTED,
    SUMS,
    FolderBytes,
    check_complete,
    check_size,
    sums_of,
    too_many,
)
from slipway.tasks.adapters.hub.reading import ETAG, SHA256, ModelHub, ignore, in_memory, readable
from slipway.tasks.adapters.store.object_store import (
    ByteSource,
    DeniedError,
    LostRaceError,
    NotFoundError,
    ObjectStore,
    StoredObject,
)
from slipway.tasks.adapters.store.transfer import Count
from slipway.tasks.contracts.base import sha256_of
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.plan import HubFile, Source

R = TypeVar("R")

PLAIN_ETAG = re.compile(r"[!#-~]{1,200}")


class ObjectStoreFolders(ModelHub):
    """Models by `s3://<bucket>/<prefix>`. A folder has no revisions: it is resolved as it is now."""

    def __init__(self, store: ObjectStore, layout: Layout) -> None:
        """`store` may read buckets beside the site's own; no model is read from what `layout` holds."""
        self._store, self._layout = store, layout

    @override
    def resolve(self, repo: str, revision: str) -> Source:
        if self._layout.holds(repo):
            raise InputError(
                f"{repo} belongs to Slipway, which writes and deletes what is there",
                expected="a folder that holds this model's files alone",
                remedy="Copy the files to another prefix, and name that in source.uri.",
            )
        listed = self._listed(repo)
        sums = self._sums(repo, listed)
        check_complete(repo, sums, listed)
        files = tuple(_file(f"{repo}/{path}", path, each, sums.get(path)) for path, each in sorted(listed.items()))
        seen = [[path, each.etag, each.size_bytes] for path, each in sorted(listed.items())]
        return Source(repo=repo, revision="", commit=sha256_of(seen), files=files)

    @override
    def read_file(self, source: Source, path: str) -> bytes:
        return self.bring(source, readable(source, path), in_memory, ignore)

    @override
    def bring(self, source: Source, file: HubFile, take: Callable[[ByteSource], R], count: Count) -> R:
        uri = f"{source.repo}/{file.path}"
        try:
            return take(_ObjectBytes(self._store, uri, file, count))
        except DeniedError as error:
            raise _denied(error, uri) from error

    def _listed(self, folder: str) -> dict[str, StoredObject]:
        """The objects below the folder, by their paths in it.

        Raises:
            InputError: there are none or too many, or one has a path that is not of a file below the folder.
        """
        prefix = f"{folder}/"
        try:
            listed = list(islice(self._store.list(prefix), MAX_FILES + 1))
        except DeniedError as error:
            raise _denied(error, folder) from error
        if len(listed) > MAX_FILES:
            raise too_many(folder)
        files = {each.uri.removeprefix(prefix): each for each in listed if not _is_marker(each)}
        if not files:
            raise InputError(
                f"{folder} holds no objects",
                expected="a checkpoint's files",
                remedy="Correct source.uri, or upload the files there.",
            )
        for path in files:
            if any(part in {"", ".", ".."} for part in path.split("/")):
                raise InputError(
                    f"{folder} holds an object whose name is not a path of a file",
                    found=repr(path[:QUOTED]),
                    expected="names without empty parts, . or ..",
                    remedy="Delete it, or copy the model's files to another prefix.",
                )
        return files

    def _sums(self, folder: str, listed: dict[str, StoredObject]) -> dict[str, str]:
        """The sha256 of files by path, from the folder's SHA256SUMS; empty where it has none."""
        if SUMS not in listed:
            return {}
        file = _file(f"{folder}/{SUMS}", SUMS, listed[SUMS], None)
        source = Source(repo=folder, revision="", commit=sha256_of([]), files=(file,))
        return sums_of(f"{folder}/{SUMS}", self.read_file(source, SUMS))


class _ObjectBytes(FolderBytes):
    """The bytes of one object, as plan saw it."""

    def __init__(self, store: ObjectStore, uri: str, file: HubFile, count: Count) -> None:
        super().__init__(uri, file)
        self._store, self._count = store, count
        algorithm, _, value = file.digest.partition(":")
        self._etag = f'"{value}"' if algorithm == ETAG else None

    @override
    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill the view.

        Raises:
            InputError: the object changed after the release was planned, or is gone.
        """
        try:
            self._store.read_into(self._uri, view, offset=offset, size_bytes=self.size_bytes, etag=self._etag)
        except (LostRaceError, NotFoundError) as error:
            gone = isinstance(error, NotFoundError)
            raise self.changed("no such object" if gone else "another object of the same name") from error
        self._count(len(view))


def _is_marker(listed: StoredObject) -> bool:
    """Whether it is the empty object that consoles make for a folder."""
    return listed.uri.endswith("/") and listed.size_bytes == 0


def _file(uri: str, path: str, listed: StoredObject, sha256: str | None) -> HubFile:
    check_size(uri, listed.size_bytes)
    etag = listed.etag.strip('"')
    if not PLAIN_ETAG.fullmatch(etag):
        raise InputError(
            f"{uri} has no ETag that a read could be conditional on",
            found=repr(etag[:QUOTED]),
            expected="visible ASCII",
            remedy="Correct object_store.endpoint in the site file: this store does not implement S3.",
        )
    digest = f"{SHA256}:{sha256}" if sha256 else f"{ETAG}:{etag}"
    return HubFile(path=path, digest=digest, size_bytes=listed.size_bytes)


def _denied(error: DeniedError, uri: str) -> InputError:
    return InputError(
        error.what,
        found=error.found,
        remedy=f"Allow the steps plan and download to list and read {uri} (s3:ListBucket, s3:GetObject), and to "
        "decrypt it where a key of KMS encrypts it (kms:Decrypt): docs/cluster-setup.md, Weights without a Hub.",
    )
