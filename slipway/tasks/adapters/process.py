"""Child processes that write to a log file and are always ended."""

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn, Self

from slipway.tasks.contracts.errors import InputError

log = logging.getLogger(__name__)

GRACE_S = 20.0
ZOMBIE = ("Z", "X")
"""States of a process that has ended (proc_pid_stat(5), field 3)."""
KILLED_S = 8.0
"""How long a killed process may take to give back its memory, that of a GPU included: with the grace period, less than
the 30 s that a step's pod has to end (slipway/airflow/pods.py)."""
LOOK_S, LAST_LOOKS_S = 1.0, 0.1
"""A process that is waited for is looked at this often, and one that was told to end."""


class Process:
    """A running command. Leaving the block ends it: SIGTERM, and SIGKILL after the grace period.

    The child stays in this process's group, so that ending the group ends the child too.
    """

    def __init__(self, command: Sequence[str], log: Path, *, grace_s: float = GRACE_S) -> None:
        """Start `command`, looked up on PATH; stdout and stderr go to `log`.

        Raises:
            InputError: the command does not exist here.
        """
        self.log, self._grace_s = log, grace_s
        self._started: set[tuple[int, str]] = set()
        try:
            with log.open("wb") as output:
                self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)  # noqa: S603 - the caller's own command
        except FileNotFoundError as error:
            raise InputError(
                f"{command[0]} is not on PATH", remedy="Run this step in the image that has it."
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs, negative when a signal ended it."""
        self.look()
        return self._child.poll()

    def wait(self) -> int:
        """Wait until the process ends by itself, and return its exit code."""
        while (code := self.exit_code) is None:
            self._wait_for(LOOK_S)
        return code

    def _wait_for(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)

    def look(self) -> None:
        """Remember what it started, and what that started: nothing tells it of a process that has ended."""
        roots = [pid for pid, start_time in self._started if _runs(pid, start_time)]
        if self._child.returncode is None:  # else its id may be another process's
            roots.append(self._child.pid)
        self._started |= _started_by(roots)

    def tail(self, lines: int) -> list[str]:
        """The last lines of the log, without blank ones."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if line.strip()][-lines:]

    def end(self) -> None:
        """End the process and all that it was seen to start. A second call changes nothing."""
        self.look()
        self._child.terminate()
        grace_ends = time.monotonic() + self._grace_s
        while self.exit_code is None and (left_s := grace_ends - time.monotonic()) > 0:
            self._wait_for(min(LAST_LOOKS_S, left_s))
        self._child.kill()
        self._child.wait()
        deadline = time.monotonic() + KILLED_S
        while left := self.running():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                log.warning("processes that %s started were killed and have not ended: %s", self._child.args, left)
                break
            time.sleep(0.01)

    def running(self) -> list[int]:
        """Ids of its children and theirs, as far as they were seen, that have not ended."""
        self.look()
        return [pid for pid, start_time in self._started if _runs(pid, start_time)]


def _started_by(roots: Sequence[int]) -> set[tuple[int, str]]:
    """Children and theirs, by process id and start time, so that a reused id is not mistaken for one."""
    started, left = set[tuple[int, str]](), list(roots)
    if not left:
        return started
    children = dict[int, list[tuple[int, str]]]()
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes five times as long
        if name.isdecimal() and (stat := _stat(int(name))):
            children.setdefault(stat.parent, []).append((int(name), stat.start_time))
    while left:
        below = children.pop(left.pop(), [])
        started.update(below)
        left += [pid for pid, _ in below]
    return started


def become(command: Sequence[str]) -> NoReturn:
    """Replace this process by `command`, looked up on PATH, which then gets its signals and sets its exit code.

    The command gets its full path, from which mpirun derives where its parts are on other nodes.

    Raises:
        InputError: the command does not exist here.
    """
    program = shutil.which(command[0])
    if program is None:
        raise InputError(f"{command[0]} is not on PATH", remedy="Run this in the image that has it.")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [program, *command[1:]])  # noqa: S606 - no shell on purpose


def is_running(name: str) -> bool:
    """Whether a process of this name (its command's first 15 bytes) runs in this container; zombies do not run."""
    return any(_is_alive(process, name) for process in Path("/proc").glob("[0-9]*"))


def _is_alive(process: Path, name: str) -> bool:
    try:
        command, _, rest = (process / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
    except OSError:  # it has ended
        return False
    return command == name and rest.split()[0] not in ZOMBIE


def free_ports(count: int, address: str) -> list[int]:
    """Ports that are free now; another process may take one before it is used."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((address, 0))
        return [each.getsockname()[1] for each in sockets]


def _runs(pid: int, start_time: str) -> bool:
    stat = _stat(pid)
    return stat is not None and stat.start_time == start_time


class Stat(NamedTuple):
    """What the kernel tells of a process that has not ended."""

    parent: int
    start_time: str


def _stat(pid: int) -> Stat | None:
    """Fields 4 and 22 of /proc/<pid>/stat (proc_pid_stat(5)); None when the process and all its threads have ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:  # noqa: PTH123 - pathlib takes twice as long
            fields = file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return None
    state, parent, threads, start_time = fields[0], fields[1], fields[17], fields[19]
    return None if state in ZOMBIE and int(threads) <= 1 else Stat(int(parent), start_time)
