"""Digests of files: SHA-256, which names a file everywhere, and BLAKE3, which readers verify it by.

The Hub, signatures and provenance state SHA-256. BLAKE3 is 1.3 times as fast on a CPU with AVX2 and SHA instructions,
and 4 times on one with AVX-512 (docs/decisions/0043).
"""

import hashlib
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from slipway.tasks.adapters.store.object_store import ByteSource
from slipway.tasks.contracts.stored.artifact import Algorithm

READ_BYTES = 2**18  # fits into a core's cache, so that the second digest reads it from there


class Digest(Protocol):
    """The digest of bytes that come one after the other."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Take the next bytes."""

    def hexdigest(self) -> str:
        """The digest so far."""


def new(algorithm: Algorithm) -> Digest:
    """The digest of no bytes yet."""
    if algorithm == "sha256":
        return hashlib.sha256()
    from blake3 import blake3

    digest: Digest = blake3()
    return digest


def digests_of_file(path: Path, *algorithms: Algorithm) -> tuple[str, ...]:
    """Hex digests of a file's bytes, which are read once."""
    digests = [new(algorithm) for algorithm in algorithms]
    with path.open("rb", buffering=0) as file, memoryview(bytearray(READ_BYTES)) as buffer:
        while count := file.readinto(buffer):
            for digest in digests:
                digest.update(buffer[:count])
    return tuple(digest.hexdigest() for digest in digests)


class Digested(ByteSource):
    """Another source, whose bytes get their BLAKE3 digest on their way too."""

    def __init__(self, source: ByteSource) -> None:
        """`source` is read as it would be without this."""
        self._source, self._blake3 = source, new("blake3")

    @property
    def blake3(self) -> str:
        """Hex digest of the bytes that were digested."""
        return self._blake3.hexdigest()

    @property
    @override
    def size_bytes(self) -> int:
        return self._source.size_bytes

    @property
    @override
    def sha256(self) -> str | None:
        return self._source.sha256

    @property
    @override
    def reads_at_once(self) -> int:
        return self._source.reads_at_once

    @override
    def read_into(self, offset: int, view: memoryview) -> None:
        self._source.read_into(offset, view)

    @override
    def digest(self, view: memoryview) -> None:
        for start in range(0, len(view), READ_BYTES):
            piece = view[start : start + READ_BYTES]
            self._source.digest(piece)
            self._blake3.update(piece)

    @override
    def verified(self) -> str:
        return self._source.verified()
