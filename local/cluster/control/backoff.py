"""Pauses between the tries of what was refused."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_S, LONGEST_S = 0.005, 1000.0
"""The work queues of the controller manager use these (client-go, util/workqueue, Kubernetes 1.36)."""


@dataclass
class _Refusal:
    why: str
    seen: object
    pause_s: float
    until: float


@dataclass
class Backoff:
    """Each pause is twice as long as the last one. A change of what is looked at ends it, and shortens no later one."""

    clock: Callable[[], float] = time.monotonic
    _refusals: dict[str, _Refusal] = field(default_factory=dict)

    def why(self, key: str, seen: object) -> str | None:
        """Why `key` was refused if it is not to be tried again yet; `seen` is its state now."""
        last = self._refusals.get(key)
        return last.why if last and last.seen == seen and self.clock() < last.until else None

    def refused(self, key: str, seen: object, why: str) -> None:
        """Record that a try was refused."""
        last = self._refusals.get(key)
        pause_s = min(2 * last.pause_s, LONGEST_S) if last else FIRST_S
        self._refusals[key] = _Refusal(why, seen, pause_s, self.clock() + pause_s)

    def accepted(self, key: str) -> None:
        """Record that a try was not refused."""
        self._refusals.pop(key, None)
