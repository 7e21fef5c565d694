"""Runs a command and adopts the processes that it leaves behind, so that their CPU seconds count when they end.

`wait4` of this process then tells what the whole tree used. Daemons and pods leave their parents; without a reaper they
would be init's. If it is told to stop, or whoever started it dies, the command is interrupted as a terminal would, so that
tests end the stacks that they started. What still runs when the command has ended is named, and ended.
"""

import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_S = 2.0
"""What is ending already, or was told to end, has this long."""
DEPTH = 8
"""Children are killed this often, since each may leave children of its own."""
TIME_SLICE_MS = 5
"""How long a process computes before others may. The default is 1.4 ms on two CPUs (Linux 6.18). With longer slices each
finds its data in the caches for longer (docs/performance.md), but beside 64 others one that wakes waited up to 0.08 s for a
CPU with the default, 0.13 with this and 0.42 with 20 ms, and Triton gives a model up that had none for a second."""
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""A system call that libc has no function for, by the machine of uname(2)."""
KEEP_POLICY = 0x08


def main(runner: int, command: list[str]) -> int:
    """The exit code of the command, once it has ended; `runner` is the pid of whoever starts it."""
    libc = ctypes.CDLL(None)
    _compute_in_longer_slices(libc)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # what interrupts the command reaches this process too, which goes on; its handler also gives the command the default
    # that `&` of a script took away
    signal.signal(signal.SIGINT, lambda *_: None)
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: _interrupt(child))
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if told or os.getppid() != runner:  # it was told before, or the runner died before the signal was asked for
        _interrupt(child)
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            break
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _end_what_is_left()
    return abs(os.waitstatus_to_exitcode(status))


def _compute_in_longer_slices(libc: ctypes.CDLL) -> None:
    """Ask for them for this process and those that it starts. Nothing changes where the kernel cannot (before 6.12) or may not."""
    if number := SCHED_SETATTR.get(os.uname().machine):
        # struct sched_attr of sched_setattr(2): size, policy, flags, nice, priority, runtime (ns), deadline, period
        attributes = struct.pack("=IIQiIQQQ", 48, 0, KEEP_POLICY, os.nice(0), 0, TIME_SLICE_MS * 1_000_000, 0, 0)
        libc.syscall(number, 0, attributes, 0)


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Interrupt the command; the whole process group, as a terminal does, where this process leads one."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGINT)
    else:
        child.send_signal(signal.SIGINT)


def _end_what_is_left() -> None:
    """End every process that descends from this one; what a process that ends leaves becomes a child of this one."""
    for number in (signal.SIGTERM, *[signal.SIGKILL] * DEPTH):
        if _are_gone_within(GRACE_S):
            return
        for pid in _children():
            with contextlib.suppress(OSError):  # it has ended
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                os.kill(pid, number)
                print(f"tests: left behind, {number.name} sent: {' '.join(words)[:300]}", flush=True)


def _are_gone_within(seconds: float) -> bool:
    """Whether all children have ended in this time; they are waited for."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not _children():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)


def _children() -> list[int]:
    """Pids of this process's children, dead ones among them."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except FileNotFoundError:  # a kernel that does not tell
        return []


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
