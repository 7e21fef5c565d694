"""Clocks: one that moves only when somebody sleeps, and one that is wrong."""

from datetime import UTC, datetime, timedelta

from slipway.tasks.adapters.clock import SystemClock


class ManualClock:
    """Starts at a fixed moment; `slept` remembers every pause."""

    def __init__(self, began=datetime(2026, 1, 1, tzinfo=UTC)):
        self.began, self.seconds, self.slept = began, 0.0, []

    def now(self):
        return self.began + timedelta(seconds=self.seconds)

    def monotonic(self):
        return self.seconds

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.seconds += seconds


class WrongClock(SystemClock):
    """The clock of a machine that is some time ahead, or behind."""

    def __init__(self, ahead):
        self._ahead = ahead

    def now(self):
        return super().now() + self._ahead
