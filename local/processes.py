"""The stack's processes, which are recognised by an entry in their environment.

Children inherit the entry, it cannot be confused with a process that got the same pid later, and it needs no record
that could be lost. Process groups and sessions would not do: Airflow puts each task into a process group of its own.
"""

import contextlib
import itertools
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from slipway.tasks.contracts.errors import PipelineError

STACK = "SLIPWAY_STACK"
"""Environment variable of every process of a stack: the stack's folder."""
SERVICE = "SLIPWAY_SERVICE"
"""Environment variable of a service and of everything that it starts: the service's name."""
BELOW_OUTGOING = range(20_000, 32_768)
"""Linux gives outgoing connections ports from 32768 on: one of those may be taken before a service listens at it."""
KILL_TIMEOUT_S = 60.0
POLL_S = 0.05


def having(**entries: str) -> set[int]:
    """Pids of this user's other processes that were started with all these environment entries."""
    expected = {f"{name}={value}".encode() for name, value in entries.items()}
    numbers = {int(folder.name) for folder in Path("/proc").glob("[0-9]*")}
    return {number for number in numbers - {os.getpid()} if expected <= _environment(number)}


def end(find: Callable[[], set[int]], timeout_s: float) -> int:
    """End the processes that `find` returns with SIGTERM, and after `timeout_s` with SIGKILL.

    Returns:
        How many processes there were.

    Raises:
        PipelineError: a process is still running long after SIGKILL.
    """
    first = left = find()
    _signal(first, find, signal.SIGTERM)
    began, killed_at = time.monotonic(), None
    while left and (killed_at is None or time.monotonic() < killed_at + KILL_TIMEOUT_S):
        if time.monotonic() >= began + timeout_s:
            _signal(left, find, signal.SIGKILL)
            killed_at = killed_at or time.monotonic()
        time.sleep(POLL_S)
        left = find() | {pid for pid in left if _is_ending(pid)}
    if left:
        numbers = ", ".join(map(str, sorted(left)))
        raise PipelineError(f"processes {numbers} did not end within {KILL_TIMEOUT_S:.0f} s of SIGKILL")
    return len(first)


def free_port(preferred: int | None = None) -> int:
    """A free loopback TCP port: `preferred` if it is free, else any; stacks that start at once choose others."""
    first = random.SystemRandom().randrange(len(BELOW_OUTGOING))
    others = itertools.chain(BELOW_OUTGOING[first:], BELOW_OUTGOING[:first])
    for port in others if preferred is None else itertools.chain([preferred], others):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no free loopback port")


def _environment(number: int) -> set[bytes]:
    """The environment of a process of this user; empty for a zombie, which has no memory any more."""
    with contextlib.suppress(OSError):
        folder = Path("/proc", str(number))
        if folder.stat().st_uid == os.getuid():
            return set((folder / "environ").read_bytes().split(b"\0"))
    return set()


def _is_ending(number: int) -> bool:
    """Whether a process has given back its memory, with its environment, and not yet its files, such as its port.

    Anyone may read this (proc_pid_stat(5)): its state, its threads, which share its files, and its bytes of memory.
    """
    with contextlib.suppress(OSError):
        fields = Path("/proc", str(number), "stat").read_text(errors="replace").rpartition(")")[2].split()
        state, threads, memory = fields[0], fields[17], fields[20]
        return memory == "0" and not (state in ("Z", "X") and int(threads) <= 1)
    return False


def _signal(numbers: set[int], find: Callable[[], set[int]], number: signal.Signals) -> None:
    """Send a signal to the processes that `find` still returns once the kernel has pinned their pids."""
    with contextlib.ExitStack() as stack:
        handles = {}
        for pid in numbers:
            with contextlib.suppress(ProcessLookupError):
                handles[pid] = os.pidfd_open(pid)
                stack.callback(os.close, handles[pid])
        for pid in find() & handles.keys():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handles[pid], number)
