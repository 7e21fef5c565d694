"""The only module that reads a clock."""

import time
from datetime import UTC, datetime
from typing import Protocol

from typing_extensions import override


class Clock(Protocol):
    """The time of a step; tests replace it with one that passes at once."""

    def now(self) -> datetime:
        """The time of day, with its zone."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""


def cpu_seconds() -> float:
    """CPU time that this process has used, with all its threads."""
    return time.process_time()


class SystemClock(Clock):
    """The machine's clock."""

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)

    @override
    def monotonic(self) -> float:
        return time.monotonic()

    @override
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
