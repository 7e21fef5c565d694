"""Files that only their owner can read. Other people may use the same machine, so the stack writes only such files."""

import contextlib
import os
import stat
from pathlib import Path
from typing import IO

PRIVATE_UMASK = 0o077
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write_private(path: Path, text: str) -> None:
    """Write a file atomically; nobody but its owner can ever read it."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
    partial.replace(path)


def open_private(path: Path) -> IO[bytes]:
    """Open an empty file for writing that only its owner can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def make_private(folder: Path) -> None:
    """Create `folder` if it is missing, and remove the permissions of group and others from everything in it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for directory, _, names in os.walk(folder):
        for path in (Path(directory), *(Path(directory, name) for name in names)):
            # a running stack may remove files at the same time
            with contextlib.suppress(FileNotFoundError):
                mode = path.lstat().st_mode
                if not stat.S_ISLNK(mode) and mode & OTHERS:
                    path.chmod(stat.S_IMODE(mode) & ~OTHERS)
