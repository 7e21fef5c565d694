"""A clock that moves only when somebody sleeps."""

from datetime import UTC, datetime, timedelta


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
