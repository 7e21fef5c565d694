"""Memory and CPU of a stack's services while a benchmark runs."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Self

from local.processes import SERVICE, STACK, having

EVERY_S = 5.0
KIB_PER_MIB = 1024


class ServiceMemory:
    """The memory of each service with all processes that it started, every few seconds, in MiB.

    Proportional set size: a page that several processes share counts once (proc(5), smaps_rollup).
    """

    def __init__(self, folder: Path, services: tuple[str, ...]) -> None:
        self._folder, self._over = folder, threading.Event()
        self.mib: dict[str, list[float]] = {service: [] for service in services}

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look, name="bench-memory", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            for service, values in self.mib.items():
                processes = having(**{STACK: str(self._folder), SERVICE: service})
                values.append(sum(map(pss_kib, processes)) / KIB_PER_MIB)
            if self._over.wait(EVERY_S):
                return


def cpu_s(folder: Path) -> float:
    """CPU seconds so far of a stack's services, and of the processes that they started and that have ended."""
    ticks = 0
    for pid in having(**{STACK: str(folder)}):
        with contextlib.suppress(OSError, IndexError):
            # utime, stime, cutime and cstime (proc(5)); the name before them may have spaces
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def pss_kib(pid: int) -> int:
    """Memory of a process in KiB; 0 if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/smaps_rollup").read_text().split("\nPss:")[1].split()[0])
    return 0


def halves(values: list[float]) -> tuple[float, float]:
    """The largest of the first half of `values`, and of the rest; the last value counts for both of one."""
    middle = max(1, len(values) // 2)
    return max(values[:middle]), max(values[middle:] or values[-1:])
