"""Where tests write: to disk, or into memory, which takes 5 % less CPU, where there is room. Neither outlasts the run."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MEMORY = Path("/dev/shm")
LEAST_MB = 12_000
"""Available memory: parts take up to 9 GB at once, and write up to 3 GB."""
PREFIX = "slipway-"


@dataclass(frozen=True)
class Folders:
    """Those of one run."""

    disk: Path
    memory: Path
    """On disk as well where memory has no room."""


@contextlib.contextmanager
def folders(memory: Path = MEMORY, least_mb: int = LEAST_MB) -> Iterator[Folders]:
    """Folders for one run. They are removed at its end, as are those of runs that were killed."""
    disk = Path(tempfile.gettempdir())
    with _folder(disk) as on_disk, _folder(memory if _has_room(memory, least_mb) else disk) as in_memory:
        yield Folders(on_disk, in_memory)


@contextlib.contextmanager
def _folder(place: Path) -> Iterator[Path]:
    for left in place.glob(f"{PREFIX}*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=place, ignore_cleanup_errors=True) as made:
        yield Path(made)


def _has_room(place: Path, least_mb: int) -> bool:
    """Docker gives a container 64 MB there, from which nothing can be executed."""
    try:
        found = os.statvfs(place)
    except OSError:
        return False
    free_mb = found.f_bavail * found.f_frsize / 2**20
    return min(free_mb, available_mb()) >= least_mb and not found.f_flag & os.ST_NOEXEC


def available_mb() -> float:
    """Memory that processes can still take."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    return sys.maxsize
