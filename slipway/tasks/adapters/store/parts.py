"""Moves one file in parts: several are read at a time, digested in order, and written while the next ones arrive.

Every byte passes once, through memory that all files of a process share, so that memory does not grow with the size of
a file, and no file is read again to be digested.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager

from slipway.tasks.adapters.clock import Clock, SystemClock

PART_BYTES = 8 * 2**20
LEAST_PART_BYTES = 2**17
BUFFER_BYTES = 14 * PART_BYTES
CONNECTIONS = 16

Read = Callable[[int, memoryview], None]
"""Fills the view with the bytes at an offset. Called from several threads."""
Digest = Callable[[memoryview], object]
"""Takes the next bytes in their order."""
Write = Callable[[int, memoryview], None]
"""Writes the bytes of an offset."""


class RateLimit:
    """Bounds the bytes per second of everything that shares it."""

    def __init__(self, bytes_per_s: int | None, clock: Clock) -> None:
        """Without a rate there is no limit."""
        self.bytes_per_s, self._clock = bytes_per_s, clock
        self._lock, self._free_at = threading.Lock(), 0.0

    def take(self, size_bytes: int) -> None:
        """Wait until these bytes may be moved."""
        if self.bytes_per_s is None:
            return
        with self._lock:
            now = self._clock.monotonic()
            starts_at = max(self._free_at, now)
            self._free_at = starts_at + size_bytes / self.bytes_per_s
        if starts_at > now:
            self._clock.sleep(starts_at - now)


class _Buffers:
    """Memory for parts. A part that is larger than all of it waits until nothing else is in memory.

    Parts that arrive have half of it at most. Otherwise they would fill it together, leave it together, and a network
    would bring bytes or take them, in turns.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = self._left_bytes = total_bytes
        self._arriving_bytes = 0
        self._spare: list[bytearray] = []
        self._changed = threading.Condition()

    def take(self, size_bytes: int, *, arriving: bool, wait_for_it: bool) -> bytearray | None:
        """Memory; None if there is none now and the caller does not wait. `arriving`: until `arrived` is called."""
        size_bytes = max(size_bytes, LEAST_PART_BYTES)
        with self._changed:
            while not self._has(size_bytes, arriving=arriving):
                if not wait_for_it:
                    return None
                self._changed.wait()
            self._left_bytes -= size_bytes
            if arriving:
                self._arriving_bytes += size_bytes
            if self._spare and len(self._spare[-1]) == size_bytes:
                return self._spare.pop()
            self._spare.clear()  # they would be memory beside that of parts of another size
        return bytearray(size_bytes)

    def arrived(self, buffer: bytearray) -> None:
        with self._changed:
            self._arriving_bytes -= len(buffer)
            self._changed.notify_all()

    def give_back(self, buffer: bytearray) -> None:
        with self._changed:
            self._left_bytes += len(buffer)
            if not self._spare or len(self._spare[-1]) == len(buffer):
                self._spare.append(buffer)
            self._changed.notify_all()

    def _has(self, size_bytes: int, *, arriving: bool) -> bool:
        if self._left_bytes < size_bytes and self._left_bytes < self._total_bytes:
            return False
        return not (arriving and self._arriving_bytes) or self._arriving_bytes + size_bytes <= self._total_bytes // 2


class Lanes:
    """The connections, the memory and the bandwidth that the files of one process share. Safe for several threads."""

    def __init__(self, connections: int = CONNECTIONS, bytes_per_s: int | None = None) -> None:
        """`connections` bounds the parts that are read or written at a time."""
        self.connections, self.limit = connections, RateLimit(bytes_per_s, SystemClock())
        self._free = threading.BoundedSemaphore(connections)
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="part")
        self._buffers = _Buffers(BUFFER_BYTES)

    def connection(self) -> AbstractContextManager[object]:
        """One of the connections, held while the block runs. The block must not call `move`, which waits for one."""
        return self._free

    def small(self, size_bytes: int, move: Callable[[memoryview], None]) -> None:
        """Call `move` with memory for a whole file of at most PART_BYTES, in the caller's thread."""
        buffer = self._buffers.take(size_bytes, arriving=False, wait_for_it=True)
        assert buffer is not None
        try:
            with memoryview(buffer)[:size_bytes] as view:
                move(view)
        finally:
            self._buffers.give_back(buffer)

    def move(
        self,
        size_bytes: int,
        read: Read,
        digest: Digest,
        write: Write,
        *,
        start: int = 0,
        part_bytes: int = PART_BYTES,
        in_order: bool = False,
        reads_at_once: Callable[[], int] | None = None,
    ) -> None:
        """Move the bytes from `start` to `size_bytes`. When it ends or fails, no read or write is left.

        Args:
            size_bytes: of the whole file.
            read: fills a part; runs in other threads.
            digest: takes each part, in order, in the caller's thread.
            write: writes a part that was digested; runs in other threads.
            start: where to begin.
            part_bytes: size of every part but the last.
            in_order: whether a part is written only after the one before it, so that what is written has no holes.
            reads_at_once: how many parts may be read now, asked again after each part. There are never more than
                connections, and without it as many as these.

        Raises:
            Exception: what `read`, `digest` or `write` raised first.
        """
        reading: deque[tuple[int, bytearray, memoryview, Future[None]]] = deque()
        writing: deque[Future[None]] = deque()
        requested = done = start
        try:
            while done < size_bytes:
                # not asked for each part that begins: if the answer changed while the first one arrived, the second one
                # would be read before the first one is written where there is one connection
                at_once = min(reads_at_once(), self.connections) if reads_at_once else self.connections
                while requested < size_bytes and len(reading) < at_once:
                    length = min(part_bytes, size_bytes - requested)
                    while writing and writing[0].done():
                        writing.popleft().result()
                    buffer = self._buffers.take(length, arriving=True, wait_for_it=not reading and not writing)
                    if buffer is None:
                        break
                    view = memoryview(buffer)[:length]
                    reading.append((requested, buffer, view, self._pool.submit(self._arrived, read, requested, view)))
                    requested += length
                if not reading:
                    writing.popleft().result()
                    continue
                offset, buffer, view, arrived = reading[0]
                arrived.result()
                digest(view)
                if in_order and writing:
                    writing.popleft().result()
                reading.popleft()
                self._buffers.arrived(buffer)
                done += len(view)
                writing.append(self._pool.submit(self._written, write, offset, buffer, view))
            while writing:
                writing.popleft().result()
        finally:
            for _, _, _, future in reading:
                future.cancel()
            wait([future for _, _, _, future in reading] + list(writing))
            for _, buffer, view, _ in reading:
                view.release()
                self._buffers.arrived(buffer)
                self._buffers.give_back(buffer)

    def _arrived(self, read: Read, offset: int, view: memoryview) -> None:
        with self._free:
            read(offset, view)

    def _written(self, write: Write, offset: int, buffer: bytearray, view: memoryview) -> None:
        try:
            with self._free:
                write(offset, view)
        finally:
            view.release()
            self._buffers.give_back(buffer)


def readable_part_bytes(connections: int) -> int:
    """The size of parts of which every connection can bring one at a time: together they have half of the memory."""
    return max(LEAST_PART_BYTES, min(PART_BYTES, BUFFER_BYTES // 2 // connections))


def part_bytes_of(size_bytes: int, most_parts: int) -> int:
    """The size of parts in which a file has no more than `most_parts`, in whole MiB."""
    least = -(-size_bytes // most_parts)
    return max(PART_BYTES, -(-least // 2**20) * 2**20)
