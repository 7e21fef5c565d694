"""Reports the progress of a transfer: a log line every few seconds, or a bar on a terminal."""

import logging
import sys
import threading
from typing import Self, TextIO

from slipway.tasks.adapters.clock import Clock

log = logging.getLogger(__name__)

LOG_INTERVAL_S = 5.0
BAR_INTERVAL_S = 0.25
BAR_CHARS = 24
UNITS = ("B", "kB", "MB", "GB", "TB")
MINUTE_S, HOUR_S = 60, 3600


class Progress:
    """Counts the bytes of one transfer, from any number of threads, and reports its progress until the block is left.

    A separate thread writes the lines, so that a stalled transfer is visible.
    """

    def __init__(self, what: str, total_bytes: int, clock: Clock, terminal: TextIO | None = None) -> None:
        """`what` names the transfer; `terminal` gets a bar instead of log lines (default: stderr, if it is one)."""
        self._what, self._total_bytes, self._clock = what, total_bytes, clock
        self._terminal = terminal or (sys.stderr if sys.stderr.isatty() else None)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._done_bytes, self._began = 0, clock.monotonic()
        self._reporter = threading.Thread(target=self._report, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._reporter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._reporter.join()
        if self._terminal:
            self._draw(self._terminal, end="\n")
        else:
            log.info(self.line())

    def add(self, size_bytes: int) -> None:
        """Count transferred bytes; a negative number takes back bytes to be transferred again."""
        with self._lock:
            self._done_bytes += size_bytes

    def line(self) -> str:
        """The progress line: bytes done and in total in one unit, rate, and time left."""
        seconds = self._clock.monotonic() - self._began
        return progress_line(self._what, self._done_bytes, self._total_bytes, seconds)

    def _report(self) -> None:
        while not self._ended.wait(BAR_INTERVAL_S if self._terminal else LOG_INTERVAL_S):
            if self._terminal:
                self._draw(self._terminal)
            else:
                log.info(self.line())

    def _draw(self, terminal: TextIO, end: str = "") -> None:
        share = self._done_bytes / self._total_bytes if self._total_bytes else 1.0
        filled = min(BAR_CHARS, round(BAR_CHARS * share))
        terminal.write(f"\r\x1b[K[{'█' * filled}{'·' * (BAR_CHARS - filled)}] {self.line()}{end}")
        terminal.flush()


def progress_line(what: str, done_bytes: int, total_bytes: int, seconds: float) -> str:
    """Format a line such as `download: 42.1 of 100.0 MB, 12.0 MB/s, 5 s left`.

    Bytes done and in total have the unit of the total. The rate is the mean since the beginning; rate and time left are
    left out before the first byte.
    """
    power = _power(total_bytes)
    amounts = f"{_in_unit(done_bytes, power)} of {_in_unit(total_bytes, power)} {UNITS[power]}"
    if done_bytes <= 0 or seconds <= 0:
        return f"{what}: {amounts}, {duration(seconds)} so far"
    rate = done_bytes / seconds
    left = "done" if done_bytes >= total_bytes else f"{duration((total_bytes - done_bytes) / rate)} left"
    return f"{what}: {amounts}, {size(int(rate))}/s, {left}"


def size(size_bytes: int) -> str:
    """Format bytes in the largest decimal unit in which they are at least 1."""
    power = _power(size_bytes)
    return f"{_in_unit(size_bytes, power)} {UNITS[power]}"


def duration(seconds: float) -> str:
    """Format seconds as seconds, minutes or hours."""
    if seconds < MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    return f"{seconds / HOUR_S:.1f} h"


def _power(size_bytes: int) -> int:
    power = 0
    while size_bytes >= 1000 ** (power + 1) and power < len(UNITS) - 1:
        power += 1
    return power


def _in_unit(size_bytes: int, power: int) -> str:
    return f"{size_bytes / 1000**power:.1f}" if power else f"{size_bytes}"
