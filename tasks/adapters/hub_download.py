"""Downloads one file of a Hub, over as many connections as it takes, and computes its digest on the way.

Files come over plain HTTP with ranges, never over hf-xet, whose transfers have hung (huggingface/xet-core#883). A
connection that brings less than IDLE_BYTES in `stall_s` seconds is closed, the next one continues where it ended, and
a file that several connections in a row hardly advance is given up.
"""

import errno
import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

import httpx
from huggingface_hub import errors, get_session
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils._http import hf_raise_for_status

from tasks.adapters.bounded_http import FILE_BODY
from tasks.adapters.clock import Clock
from tasks.adapters.hub_errors import is_transient
from tasks.adapters.transfer import Count
from tasks.contracts.errors import InputError, UnavailableError
from tasks.contracts.plan import HubFile

log = logging.getLogger(__name__)

IDLE_CONNECTIONS = 4
IDLE_BYTES = 16 * 2**10  # a connection that brings less counts as idle
LONGEST_PAUSE_S = 8.0
RANGE_IGNORED = 200
NAME_QUOTED = 80
LONGER = "longer than its announced size"
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})


class Connection(Protocol):
    """How to reach the Hub."""

    token: str | None
    clock: Clock
    stall_s: float


class _TooLongError(Exception):
    """The server sends more bytes than it announced. Never leaves Download."""


class Download:
    """One file from one address, over as many connections as it takes."""

    def __init__(self, url: str, hub: Connection, file: HubFile, out: BinaryIO, count: Count, what: str) -> None:
        self._url, self._file, self._out, self._count, self._what = url, file, out, count, what
        self._clock, self._stall_s = hub.clock, hub.stall_s
        self._headers = build_hf_headers(token=hub.token or False)
        self._digest, self._position = digest_of(file), 0

    def run(self) -> str:
        """Write the file; return its digest in the announced form, or LONGER when the server sends too much."""
        self._restart()
        failures = 0
        while self._position < self._file.size_bytes:
            before, reason = self._position, "it ended early"
            try:
                self._connect()
            except _TooLongError:
                return LONGER
            except httpx.TransportError as error:
                reason = type(error).__name__
            except errors.HfHubHTTPError as error:
                if not is_transient(error.response.status_code):
                    raise
                reason = f"status {error.response.status_code}"
            if self._position >= self._file.size_bytes:
                break
            failures = failures + 1 if self._position - before < IDLE_BYTES else 1
            self._pause(failures, reason)
        return self._file.digest.partition(":")[0] + ":" + str(self._digest.hexdigest())

    def _connect(self) -> None:
        headers = self._headers | ({"Range": f"bytes={self._position}-"} if self._position else {})
        with get_session().stream("GET", self._url, headers=headers, extensions=FILE_BODY) as response:
            if response.is_error:
                response.read()
            hf_raise_for_status(response)
            if self._position and response.status_code == RANGE_IGNORED:
                self._restart()
            since, before = self._clock.monotonic(), self._position
            for chunk in response.iter_raw():
                self._take(chunk)
                if (now := self._clock.monotonic()) - since >= self._stall_s:
                    if self._position - before < IDLE_BYTES and self._position < self._file.size_bytes:
                        raise httpx.ReadTimeout(f"{self._position - before} bytes in {now - since:.0f} s")
                    since, before = now, self._position

    def _take(self, chunk: bytes) -> None:
        if self._position + len(chunk) > self._file.size_bytes:
            raise _TooLongError
        self._out.write(chunk)
        self._digest.update(chunk)
        self._position += len(chunk)
        self._count(len(chunk))

    def _pause(self, failures: int, reason: str) -> None:
        where = f"{self._position} of {self._file.size_bytes} bytes"
        if failures >= IDLE_CONNECTIONS:
            raise UnavailableError(
                f"{self._what} stalled at {where}",
                found=f"{failures} failed connections in a row, the last by {reason}",
                remedy="Run the step again.",
            )
        log.warning("%s: interrupted at %s (%s), continuing there", self._what, where, reason)
        self._clock.sleep(min(2.0 ** (failures - 1), LONGEST_PAUSE_S))

    def _restart(self) -> None:
        self._count(-self._position)
        if self._out.tell():
            self._out.seek(0)
            self._out.truncate()
        self._digest, self._position = digest_of(self._file), 0


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Turn errors of the scratch disk into Slipway's. Translate network errors first: they are OSErrors too."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            raise InputError(
                f"the scratch disk is full, so that {path[:NAME_QUOTED]} cannot be written",
                remedy="Raise shapes.transfer.scratch in the site file; if other pods fill the node's disk, free it or "
                "move them.",
            ) from error
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(
                f"the name of file {path[:NAME_QUOTED]}... is longer than a file system allows",
                found=f"{len(path)} characters",
                remedy="Rename the file in its repository.",
            ) from error
        raise UnavailableError(
            f"{path[:NAME_QUOTED]} cannot be written to scratch: {error.strerror or error}",
            remedy="Run the step again: another node may have a working disk.",
        ) from error


def digest_of(file: HubFile) -> Any:
    """A fresh digest; git's blob id is the sha1 of a header and the bytes (git-scm.com/book, Git Objects)."""
    if file.digest.startswith("sha256:"):
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size_bytes, usedforsecurity=False)
