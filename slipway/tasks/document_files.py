"""Opens spec and site files. It imports only contracts: Airflow, the steps and the command all use it."""

import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from slipway.tasks.contracts.base import C
from slipway.tasks.contracts.documents import MAX_BYTES, parse_contract, parse_document
from slipway.tasks.contracts.errors import InputError

BLOCK_BYTES = 1 << 20


def read_document(path: Path) -> Any:
    """Return the data in a spec or site file.

    Raises:
        InputError: it cannot be read, is not a regular file, or is not a document (see parse_document).
    """
    return parse_document(read_regular_file(path), str(path))


def read_contract_file(model: type[C], path: Path) -> C:
    """Read and validate a spec or site file.

    Raises:
        InputError: as of read_document, or it is not a valid `model`.
    """
    return parse_contract(model, read_regular_file(path), str(path))


def read_regular_file(path: Path, limit: int = MAX_BYTES, *, expected: str = "a YAML file") -> bytes:
    """The first `limit` + 1 bytes of a file.

    Raises:
        InputError: it cannot be read, or is not a regular file.
    """
    try:
        # O_NONBLOCK: a FIFO in the folder would otherwise hold the reader until somebody writes to it
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InputError(f"{path} is not a regular file", expected=expected, remedy="Remove or rename it.")
            return _up_to(limit + 1, file)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
            expected=expected,
            remedy="Check its path and its permissions.",
        ) from error


def _up_to(limit: int, file: BinaryIO) -> bytes:
    # read(limit) has a buffer of `limit` bytes made first, however short the file is
    data, left = [], limit
    while left and (block := file.read(min(left, BLOCK_BYTES))):
        data.append(block)
        left -= len(block)
    return b"".join(data)
