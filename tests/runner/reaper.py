"""Runs a command and adopts the processes that it leaves behind, so that their CPU seconds count when they end.

`wait4` of this process then tells what the whole tree used, but for what still runs at its end. Daemons and pods leave
their parents; without a reaper they would be init's. If it is told to stop, or whoever started it dies, the command is
interrupted as a terminal would, so that tests end the stacks that they started.
"""

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main(runner: int, command: list[str]) -> int:
    """The exit code of the command, once it has ended; `runner` is the pid of whoever starts it."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # the terminal interrupts the command itself, to which a handler gives back the default that `&` of a script took away
    signal.signal(signal.SIGINT, lambda *_: None)
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGINT))
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != runner:  # it died before the signal was asked for
        child.send_signal(signal.SIGINT)
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return abs(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
