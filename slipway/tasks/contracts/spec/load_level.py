"""A level of the load test: a number of clients, or a rate of requests."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class LoadLevel:
    """Exactly one of two ways to send requests.

    `concurrency`: a closed loop of as many clients, each of which sends its next request after an answer ends.
    `request_rate`: an open loop of requests per second on average, which are sent whatever became of those before.
    """

    concurrency: int | None = None
    request_rate: float | None = None

    def __post_init__(self) -> None:
        if (self.concurrency is None) == (self.request_rate is None):
            raise ValueError(f"{self!r}: give either concurrency or request_rate")

    def __str__(self) -> str:
        return f"concurrency {self.concurrency}" if self.request_rate is None else f"{self.request_rate:g} requests/s"

    def __lt__(self, other: Self) -> bool:
        """Numbers of clients before rates."""
        return self._place < other._place

    @property
    def _place(self) -> tuple[float, int]:
        return self.request_rate or 0.0, self.concurrency or 0
