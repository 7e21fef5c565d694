"""Child processes: started with a log file, looked at, and always ended."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn, Self

from tasks.contracts.errors import InputError

GRACE_S = 20.0


class Process:
    """A running command. Leaving the block ends it: SIGTERM, and SIGKILL after the grace time.

    The child stays in this process's group, so that whoever ends the group ends the child too.
    """

    def __init__(self, command: Sequence[str], log: Path, *, grace_s: float = GRACE_S) -> None:
        """Start `command`, looked up on PATH; stdout and stderr go to `log`.

        Raises:
            InputError: there is no such command here.
        """
        self.log, self._grace_s = log, grace_s
        try:
            with log.open("wb") as output:
                self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)  # noqa: S603 - the caller's own command
        except FileNotFoundError as error:
            raise InputError(f"{command[0]} is not on PATH; run this step in the image that has it.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._child.poll()

    def wait(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self._child.wait()

    def tail(self, lines: int) -> list[str]:
        """The last lines of its log, without blank ones."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if line.strip()][-lines:]

    def end(self) -> None:
        """End it and what it started. A second call changes nothing."""
        started = self._children()
        self._child.terminate()
        try:
            self._child.wait(self._grace_s)
        except subprocess.TimeoutExpired:
            started |= self._children()
            self._child.kill()
            self._child.wait()
        for child in started:
            _kill(child)

    def _children(self) -> set[tuple[int, str]]:
        """Process ids of direct children with their start times, so that a reused id is not taken for one."""
        found = set()
        for task in Path(f"/proc/{self._child.pid}/task").glob("*/children"):
            try:
                pids = [int(pid) for pid in task.read_text().split()]
            except OSError:  # the thread ended meanwhile
                continue
            found |= {(pid, _start_time(pid)) for pid in pids}
        return found


def become(command: Sequence[str]) -> NoReturn:
    """Replace this process by `command`, looked up on PATH: signals and exit codes are the command's own from here.

    The path is given in full, from which mpirun learns where its own parts lie on other nodes.

    Raises:
        InputError: there is no such command here.
    """
    found = shutil.which(command[0])
    if found is None:
        raise InputError(f"{command[0]} is not on PATH; run this in the image that has it.")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(found, [found, *command[1:]])  # noqa: S606 - no shell is what is wanted


def free_ports(count: int, address: str) -> list[int]:
    """Ports that nobody listens on now; another process may take one before its user does."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((address, 0))
        return [each.getsockname()[1] for each in sockets]


def _kill(child: tuple[int, str]) -> None:
    pid, start_time = child
    if start_time and _start_time(pid) == start_time:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _start_time(pid: int) -> str:
    """Field 22 of /proc/<pid>/stat (proc_pid_stat(5)); empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
