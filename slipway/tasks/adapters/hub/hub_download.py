"""Reads one file of a Hub in parts, over as many connections as it takes, and computes its digest on the way.

Parts come over plain HTTP by ranges, several at a time, never over hf-xet (docs/decisions/0032). A connection that
brings less than IDLE_BYTES in `stall_s` seconds is closed, the next one continues where it ended, and a part that
several connections in a row hardly advance is given up. A server that ignores ranges is read over one connection.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import httpx
from huggingface_hub import errors, get_session, hf_raise_for_status
from typing_extensions import override

from slipway.tasks.adapters.bounded_http import FILE_BODY
from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.hub.hub_errors import is_transient
from slipway.tasks.adapters.store.object_store import ByteSource
from slipway.tasks.adapters.store.parts import CONNECTIONS
from slipway.tasks.adapters.store.transfer import Count
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.stored.plan import HubFile
from slipway.tasks.contracts.version import VERSION

log = logging.getLogger(__name__)
AGENT = {"User-Agent": f"slipway/{VERSION}"}

IDLE_CONNECTIONS = 4
IDLE_BYTES = 16 * 2**10  # a connection that brings less counts as idle
LONGEST_PAUSE_S = 8.0
PARTIAL_CONTENT = 206
LONGER = "longer than its announced size"
SHA256 = "sha256:"


class Connection(Protocol):
    """How to reach the Hub."""

    token: str | None
    clock: Clock
    stall_s: float


class WrongBytesError(Exception):
    """The bytes are not what was announced. Never leaves the adapter of the Hub."""

    def __init__(self, actual: str) -> None:
        """`actual` is their digest in the announced form, or LONGER."""
        super().__init__(actual)
        self.actual = actual


class RemoteFile(ByteSource):
    """One file at one address. `read_into` may run in several threads unless `reads_at_once` is 1."""

    def __init__(
        self,
        url: str,
        hub: Connection,
        file: HubFile,
        count: Count,
        what: str,
        translated: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`translated` turns the errors of a connection into Slipway's."""
        self._translated = translated
        self._url, self._file, self._count, self._what = url, file, count, what
        self._clock, self._stall_s = hub.clock, hub.stall_s
        self._headers = AGENT | ({"Authorization": f"Bearer {hub.token}"} if hub.token else {})
        self._announced, self._sha256 = digest_of(file), hashlib.sha256()
        self._counted_bytes, self._counting = 0, threading.Lock()
        self._takes_ranges: bool | None = None
        self._in_order: tuple[Iterator[bytes], bytes, int] | None = None
        """What a server that ignores ranges still sends: its chunks, the rest of the last one, and their offset."""

    @property
    @override
    def size_bytes(self) -> int:
        return self._file.size_bytes

    @property
    @override
    def sha256(self) -> str | None:
        return self._file.digest.removeprefix(SHA256) if self._file.digest.startswith(SHA256) else None

    @property
    @override
    def reads_at_once(self) -> int:
        return CONNECTIONS if self._takes_ranges else 1

    @override
    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill the view.

        Raises:
            WrongBytesError: the server sends more bytes than it announced.
            UnavailableError: the file does not advance.
        """
        position = failures = 0
        while position < len(view):
            before, reason = position, "it ended early"
            with self._translated():
                try:
                    for chunk in self._chunks(offset + position, offset + len(view)):
                        view[position : position + len(chunk)] = chunk
                        position += len(chunk)
                        self._counted(len(chunk))
                except httpx.TransportError as error:
                    reason = type(error).__name__
                except errors.HfHubHTTPError as error:
                    if not is_transient(error.response.status_code):
                        raise
                    reason = f"status {error.response.status_code}"
            if position < len(view):
                self._in_order = None
                failures = failures + 1 if position - before < IDLE_BYTES else 1
                self._pause(failures, offset + position, reason)

    @override
    def digest(self, view: memoryview) -> None:
        self._announced.update(view)
        if self.sha256 is None:
            self._sha256.update(view)

    @override
    def verified(self) -> str:
        """Hex sha256 of the bytes.

        Raises:
            WrongBytesError: they are not what was announced.
        """
        actual = f"{self._file.digest.partition(':')[0]}:{self._announced.hexdigest()}"
        if actual != self._file.digest:
            raise WrongBytesError(actual)
        return self.sha256 or self._sha256.hexdigest()

    def take_back(self) -> None:
        """Uncount the bytes, which are going to be read again."""
        self._count(-self._counted_bytes)
        self._counted_bytes = 0

    def _counted(self, size_bytes: int) -> None:
        with self._counting:
            self._counted_bytes += size_bytes
        self._count(size_bytes)

    def _chunks(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to `end`, or fewer if the connection ends."""
        if self._in_order and self._in_order[2] == start:
            chunks, rest, _ = self._in_order
        else:
            chunks, rest = self._connected(start, end), b""
        position = start
        while position < end:
            chunk = rest or next(chunks, b"")
            if not chunk:
                return
            taken, rest = chunk[: end - position], chunk[end - position :]
            position += len(taken)
            if self._takes_ranges is False:
                self._in_order = chunks, rest, position
            yield taken
        if (end == self.size_bytes or self._takes_ranges) and (rest or next(chunks, b"")):
            raise WrongBytesError(LONGER)

    def _connected(self, start: int, end: int) -> Iterator[bytes]:
        """Open a connection and yield what it brings from `start` on."""
        is_part = start > 0 or end < self.size_bytes
        headers = self._headers | ({"Range": f"bytes={start}-{end - 1}"} if is_part else {})
        with get_session().stream("GET", self._url, headers=headers, extensions=FILE_BODY) as response:
            if response.is_error:
                response.read()
            hf_raise_for_status(response)
            skipped = 0
            if is_part:
                self._takes_ranges = response.status_code == PARTIAL_CONTENT
                if not self._takes_ranges:
                    skipped = start
                    log.warning("%s: the server ignores ranges, reading over one connection", self._what)
            since, before, received = self._clock.monotonic(), 0, 0
            for chunk in response.iter_raw():
                received += len(chunk)
                if received > skipped:
                    yield chunk[max(0, skipped - (received - len(chunk))) :]
                if (now := self._clock.monotonic()) - since >= self._stall_s:
                    if received - before < IDLE_BYTES:
                        raise httpx.ReadTimeout(f"{received - before} bytes in {now - since:.0f} s")
                    since, before = now, received

    def _pause(self, failures: int, position: int, reason: str) -> None:
        where = f"{position} of {self._file.size_bytes} bytes"
        if failures >= IDLE_CONNECTIONS:
            raise UnavailableError(
                f"{self._what} stalled at {where}",
                found=f"{failures} failed connections in a row, the last by {reason}",
                remedy="Run the step again.",
            )
        log.warning("%s: interrupted at %s (%s), continuing there", self._what, where, reason)
        self._clock.sleep(min(2.0 ** (failures - 1), LONGEST_PAUSE_S))


def digest_of(file: HubFile) -> Any:
    """A fresh digest; git's blob id is the sha1 of a header and the bytes (git-scm.com/book, Git Objects)."""
    if file.digest.startswith(SHA256):
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size_bytes, usedforsecurity=False)
