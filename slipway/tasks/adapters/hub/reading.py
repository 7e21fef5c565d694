"""The protocol of whatever holds models, and how a small file of one is read at plan."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from slipway.tasks.adapters.store.object_store import ByteSource
from slipway.tasks.adapters.store.parts import PART_BYTES
from slipway.tasks.adapters.store.transfer import Count
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.plan import HubFile, Source

R = TypeVar("R")

READ_BYTES = 32 * 2**20
SHA256, ETAG, STAT = "sha256", "etag", "stat"
"""Algorithms of HubFile.digest."""


class ModelHub(Protocol):
    """Models by name and revision.

    Every method raises InputError when the model, its revision or a file does not exist or we have no access to it, and
    UnavailableError when its holder does not answer.
    """

    def resolve(self, repo: str, revision: str) -> Source:
        """The current commit of a branch, tag or commit of a model, and all its files as announced."""

    def read_file(self, source: Source, path: str) -> bytes:
        """One of the source's files, small enough to be held in memory.

        Raises:
            InputError: it is larger than 32 MiB, or not one of the source's files.
            DigestMismatchError: its bytes are not what was announced.
        """

    def bring(self, source: Source, file: HubFile, take: Callable[[ByteSource], R], count: Count) -> R:
        """Give one of the source's files to `take` and return what that returns.

        `take` may be called again if the bytes were not what was announced: a second download repairs what a bad
        connection garbled.

        Raises:
            DigestMismatchError: the bytes are never what was announced.
        """


def readable(source: Source, path: str) -> HubFile:
    """The source's file at a path.

    Raises:
        InputError: there is none, or it is larger than READ_BYTES.
    """
    file = next((file for file in source.files if file.path == path), None)
    if file is None or file.size_bytes > READ_BYTES:
        raise InputError(
            f"{source.name} has no {path} that can be read at plan",
            found="no such file" if file is None else f"{file.size_bytes} bytes",
            expected=f"a file of at most {READ_BYTES} bytes",
            remedy="Choose another revision.",
        )
    return file


def in_memory(source: ByteSource) -> bytes:
    """All bytes of a file, verified."""
    data = bytearray(source.size_bytes)
    with memoryview(data) as view:
        for offset in range(0, len(data), PART_BYTES):
            part = view[offset : offset + PART_BYTES]
            source.read_into(offset, part)
            source.digest(part)
    source.verified()
    return bytes(data)


def ignore(_: int) -> None:
    """Count nothing."""
