"""Gives a container's process the file system that its pod declares: a read-only root and writable mounts.

The shim imports this module by path into an interpreter without site-packages, so it uses the standard library alone.
`python -I -S confinement.py VIEW WORDS...` runs a command in a view, for probes and hooks that execute one.

Two methods, of which `available` picks the first that this kernel permits:

- namespaces: a mount namespace, which an ordinary user gets inside a user namespace. Mounts are at their real paths
  where this machine has such a folder, /dev/shm is the container's own, and a refused write fails with EROFS.
- landlock: a Landlock ruleset. Mounts are reached by their folders on this machine only; folders of the machine that a
  mount would cover (/tmp) are shared, /dev/shm as well, and a refused write fails with EACCES.

Linux's own headers give the numbers: include/uapi/linux/{mount,landlock,sched}.h of Linux 6.12; mount_setattr and the
Landlock calls have the same number on every architecture.
"""

import ctypes
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

NAMESPACES, LANDLOCK, NONE = "namespaces", "landlock", "none"
DESCRIPTIONS = {
    NAMESPACES: "read-only root file systems, mounts and 64 MiB of /dev/shm per container are enforced (namespaces)",
    LANDLOCK: "read-only root file systems and mounts are enforced (Landlock); pods share /tmp and /dev/shm",
    NONE: "not enforced: read-only root file systems and mounts (this kernel permits neither namespaces nor Landlock)",
}
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the container's
SHARED_MEMORY_BYTES = 64 * 1024**2  # containerd's default
PROBE = "touch writable/file && ! touch file"
PROBE_TIMEOUT_S = 120

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
MS_NOSUID, MS_NODEV = 1 << 1, 1 << 2
MOUNT_SETATTR, MOUNT_ATTR_RDONLY, AT_FDCWD, AT_RECURSIVE = 442, 1, -100, 0x8000

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
RULESET_VERSION, RULE_PATH_BENEATH, PR_SET_NO_NEW_PRIVS = 1, 1, 38
WRITE_FILE, REFER, TRUNCATE = 1 << 1, 1 << 13, 1 << 14
CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))  # remove and make entries of every type
REFER_ABI, TRUNCATE_ABI = 2, 3


class View(NamedTuple):
    """The file system of a container, in paths of this machine."""

    method: str
    writable: tuple[str, ...] = ()
    """Folders and files."""
    mounts: tuple[tuple[str, str, bool], ...] = ()
    """Folders, the container's paths for them that this machine has too, and whether the container may write there."""
    kept: tuple[str, ...] = ()
    """Folders of this machine that stay visible even if a mount covers their parent."""

    def to_json(self) -> str:
        """One line that `from_json` reads."""
        return json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> "View":
        """The inverse of `to_json`."""
        return cls(*json.loads(text))


def available(folder: Path) -> str:
    """The first method that works on this machine; each is tried in `folder` by a process of its own."""
    writable = folder / "writable"
    writable.mkdir(parents=True, exist_ok=True)
    for method in (NAMESPACES, LANDLOCK):
        command = [*command_in(View(method, (str(writable),))), "/bin/sh", "-c", PROBE]
        result = subprocess.run(command, cwd=folder, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False)
        if result.returncode == 0:
            return method
    return NONE


def command_in(view: View) -> list[str]:
    """A command prefix that runs a command in `view`."""
    return [sys.executable, "-I", "-S", __file__, view.to_json()]


def enter(view: View) -> None:
    """Confine the calling process, which must have a single thread, and what it starts.

    Raises:
        OSError: the kernel refused.
    """
    directory = Path.cwd()
    if view.method == NAMESPACES:
        _enter_namespaces(view)
    elif view.method == LANDLOCK:
        _restrict_writes(view)
    os.chdir(directory)  # a mount may cover the old working directory


def _enter_namespaces(view: View) -> None:
    _unshare()
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    for path in view.writable:
        _mount(path, path, None, MS_BIND)
    kept = [(path, os.open(path, os.O_PATH)) for path in view.kept if any(_below(path, to) for _, to, _ in view.mounts)]
    for source, target, _ in view.mounts:
        _mount(source, target, None, MS_BIND | MS_REC)
    for path, descriptor in kept:
        Path(path).mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND | MS_REC)
        os.close(descriptor)
    _set_read_only("/", AT_RECURSIVE, read_only=True)
    targets = [target for _, target, writable in view.mounts if writable]
    for path in [*view.writable, *targets, "/proc"]:
        _set_read_only(path, 0, read_only=False)
    if SHARED_MEMORY not in [target for _, target, _ in view.mounts] and Path(SHARED_MEMORY).is_dir():
        _mount("shm", SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, f"size={SHARED_MEMORY_BYTES},mode=1777")


def _unshare() -> None:
    """Enter a mount namespace; without the privilege, inside a user namespace in which this user keeps its id."""
    libc, user, group = _libc(), os.geteuid(), os.getegid()
    if user == 0 and libc.unshare(CLONE_NEWNS) == 0:
        return
    _check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _below(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    arguments = [word.encode() if word is not None else None for word in (source, target, kind, options)]
    result = _libc().mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(flags), arguments[3])
    _check(result, f"mount {source} on {target}")


def _set_read_only(path: str, flags: int, *, read_only: bool) -> None:
    """mount_setattr(2) with struct mount_attr {attr_set, attr_clr, propagation, userns_fd}."""
    attributes = struct.pack("QQQQ", *((MOUNT_ATTR_RDONLY, 0) if read_only else (0, MOUNT_ATTR_RDONLY)), 0, 0)
    size = ctypes.c_size_t(len(attributes))
    result = _libc().syscall(MOUNT_SETATTR, AT_FDCWD, path.encode(), ctypes.c_uint(flags), attributes, size)
    _check(result, f"mount_setattr {path}")


def _restrict_writes(view: View) -> None:
    """landlock(7): refuse every write outside the paths with a rule."""
    libc = _libc()
    version = _check(libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), RULESET_VERSION), "landlock")
    on_files = WRITE_FILE | (TRUNCATE if version >= TRUNCATE_ABI else 0)
    on_folders = on_files | CHANGE_FOLDER | (REFER if version >= REFER_ABI else 0)
    handled = struct.pack("Q", on_folders)
    ruleset = _check(libc.syscall(CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0), "landlock_create_ruleset")
    covered = [target for _, target, writable in view.mounts if writable]
    for path in [*view.writable, *covered, SHARED_MEMORY]:
        if Path(path).exists():
            _allow(ruleset, path, on_folders if Path(path).is_dir() else on_files)
    for path in ("/dev", "/proc"):
        _allow(ruleset, path, on_files)
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    _check(libc.syscall(RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH)
    rule = struct.pack("=Qi", access, descriptor)
    _check(_libc().syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0), f"landlock_add_rule {path}")
    os.close(descriptor)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def main(arguments: list[str]) -> None:
    """Replace this process with the command, confined to the view."""
    try:
        enter(View.from_json(arguments[0]))
        os.execvp(arguments[1], arguments[1:])  # noqa: S606 - it is the container's command
    except OSError as error:
        sys.stderr.write(f"exec: {arguments[1]!r}: {error.strerror}\n")
        sys.exit(126)


if __name__ == "__main__":
    main(sys.argv[1:])
