"""What folders of models have in common, wherever they lie: bounds, SHA256SUMS, and files whose bytes are verified."""

import hashlib
import re
from collections.abc import Collection, Iterable

from typing_extensions import override

from slipway.tasks.adapters.hub.reading import SHA256
from slipway.tasks.adapters.progress import size
from slipway.tasks.adapters.store.object_store import ByteSource
from slipway.tasks.adapters.store.parts import CONNECTIONS
from slipway.tasks.contracts.errors import DigestMismatchError, InputError
from slipway.tasks.contracts.stored.plan import HubFile

MAX_FILES = 1000  # the largest models have some 200
MAX_FILE_BYTES = 500 * 10**9
"""The largest file of a repository of the Hub (huggingface.co/docs/hub/storage-limits)."""
QUOTED = 80
SUMS = "SHA256SUMS"
SUM_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?:\./)?(?P<path>\S.*)")
"""A line of `sha256sum *`: the digest, a space, a space or * for the mode of reading, the name."""


class FolderBytes(ByteSource):
    """The bytes of one file as plan saw it; how they are read is the folder's."""

    def __init__(self, uri: str, file: HubFile) -> None:
        self._uri, self._file = uri, file
        algorithm, _, value = file.digest.partition(":")
        self._announced = value if algorithm == SHA256 else None
        self._digest = hashlib.sha256()

    @property
    @override
    def size_bytes(self) -> int:
        return self._file.size_bytes

    @property
    @override
    def sha256(self) -> str | None:
        return self._announced

    @property
    @override
    def reads_at_once(self) -> int:
        return CONNECTIONS

    @override
    def digest(self, view: memoryview) -> None:
        self._digest.update(view)

    @override
    def verified(self) -> str:
        actual = self._digest.hexdigest()
        if self._announced not in {None, actual}:
            raise DigestMismatchError(
                self._uri,
                expected=self._file.digest,
                found=f"{SHA256}:{actual}",
                remedy=f"Copy the file there again, or correct {SUMS} beside it, and release again.",
            )
        return actual

    def changed(self, found: str) -> InputError:
        """The refusal of a file that is not the one that plan saw."""
        return InputError(
            f"{self._uri} changed after it was planned",
            found=found,
            expected=f"{self.size_bytes} bytes, {self._file.digest}",
            remedy="Release again, which plans what is there now; do not write to a folder that is being released.",
        )


def check_size(uri: str, size_bytes: int) -> None:
    """Check that a file is no larger than one of a model can be.

    Raises:
        InputError: it is.
    """
    if size_bytes > MAX_FILE_BYTES:
        raise InputError(
            f"{uri} is too large for a file of a model",
            found=size(size_bytes),
            expected=f"at most {size(MAX_FILE_BYTES)}",
            remedy="Save the model in several files (transformers: save_pretrained(max_shard_size=...)).",
        )


def too_many(folder: str) -> InputError:
    """The refusal of a folder that holds more than one model's files."""
    return InputError(
        f"{folder} holds too many files for one model",
        found=f"more than {MAX_FILES}",
        expected=f"at most {MAX_FILES}",
        remedy="Name the folder that holds this model's files alone.",
    )


def sums_of(uri: str, data: bytes) -> dict[str, str]:
    """The sha256 of each file by its path.

    Raises:
        InputError: a line is not one that `sha256sum` writes, or gives a file another digest than an earlier one.
    """
    sums: dict[str, str] = {}
    for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), start=1):
        parts = SUM_LINE.fullmatch(line)
        if parts is None:
            raise InputError(
                f"{uri}, line {number} is not a digest and a file's name",
                found=repr(line[:QUOTED]),
                expected="what `sha256sum *` prints",
                remedy="Write the file again with `sha256sum`.",
            )
        if sums.setdefault(parts["path"], parts["sha256"]) != parts["sha256"]:
            raise InputError(
                f"{uri}, line {number} gives another digest of a file than an earlier line",
                found=repr(parts["path"][:QUOTED]),
                expected="one digest for each file",
                remedy="Write the file again with `sha256sum`.",
            )
    return sums


def check_complete(uri: str, sums: Iterable[str], found: Collection[str]) -> None:
    """Refuse a folder that a copy has not filled yet, or not as a whole.

    Raises:
        InputError: SHA256SUMS names a file of the folder's top that is not there.
    """
    if missing := sorted(path for path in sums if "/" not in path and path not in found):
        raise InputError(
            f"{uri} lacks {len(missing)} files that its {SUMS} names",
            found=f"no {missing[0][:QUOTED]!r}",
            expected="every file that it names",
            remedy=f"Wait for the copy to end or copy them, or write {SUMS} again with `sha256sum`.",
        )
