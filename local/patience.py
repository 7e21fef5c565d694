"""How long to wait for services that start: on a busy machine longer, as long as they work on it."""

import time
from collections.abc import Callable
from pathlib import Path

IDLE_TIMEOUT_S = 60.0
"""Seconds without work after which a service that does not answer never will."""
CPU_TIMEOUT_S = 300.0
"""Seconds of CPU, several times what the whole stack needs, after which work is not progress."""
LOOK_EVERY_S = 1.0
AT_WORK = 0.5
"""A service that starts keeps a thread running, or waiting for a CPU, for nearly all of the time; one that has started,
or waits for something that never comes, for a few percent."""

Times = tuple[float, float]
"""Seconds that a thread has run, and that it has wanted to run: with those in which other threads had the CPUs."""


class Patience:
    """Runs out when processes have not worked for a while, or have had far more CPU than a start takes."""

    def __init__(self, processes: Callable[[], set[int]], clock: Callable[[], float] = time.monotonic) -> None:
        """`processes` returns the pids to look at, which may change."""
        self._processes, self._clock = processes, clock
        self._worked_at = self._looked_at = clock()
        self._threads: dict[Path, Times] = {}
        self._ran_s = 0.0

    def is_over(self) -> bool:
        """Whether there is no reason to wait any longer. Looks at most once a second."""
        now = self._clock()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._look(now)
        return now - self._worked_at > IDLE_TIMEOUT_S or self._ran_s > CPU_TIMEOUT_S

    def _look(self, now: float) -> None:
        threads = _threads(self._processes())
        # a thread that is new has had all its time since the last look
        spent = {thread: _less(times, self._threads.get(thread, (0.0, 0.0))) for thread, times in threads.items()}
        self._ran_s += sum(ran for ran, _ in spent.values())
        if max((wanted for _, wanted in spent.values()), default=0.0) >= AT_WORK * (now - self._looked_at):
            self._worked_at = now
        self._threads, self._looked_at = threads, now


def _threads(processes: set[int]) -> dict[Path, Times]:
    """The times of every thread; those of a process that has just ended are left out."""
    found = {}
    for pid in processes:
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                ran_ns, waited_ns, _ = map(int, file.read_text().split())
            except (OSError, ValueError):
                continue
            found[file] = (ran_ns / 1e9, (ran_ns + waited_ns) / 1e9)
    return found


def _less(times: Times, before: Times) -> Times:
    return max(0.0, times[0] - before[0]), max(0.0, times[1] - before[1])
