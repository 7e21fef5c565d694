"""Where tests write: into memory where there is room, which takes 7 % less CPU than a disk, and not beyond the run."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.runner.schedule import available_mb

MEMORY = Path("/dev/shm")
LEAST_MB = 12_000
"""Available memory: parts take up to 9 GB at once, and write up to 1.5 GB."""
PREFIX = "slipway-"


@contextlib.contextmanager
def folder(memory: Path = MEMORY, least_mb: int = LEAST_MB) -> Iterator[Path]:
    """A folder for one run. It is removed at the end, as are those of runs that were killed."""
    place = memory if _has_room(memory, least_mb) else Path(tempfile.gettempdir())
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
