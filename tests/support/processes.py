"""What the kernel tells of a process that may end at any moment."""

import contextlib
import os
from pathlib import Path

ENDED = frozenset({"", "Z", "X"})


def state_of(pid):
    """Letter of proc_pid_stat(5); empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second if it ends between open and read
        return ""


def is_running(pid):
    """Whether it exists and has not ended; a zombie waits for its parent."""
    return state_of(pid) not in ENDED


def sent(pid, number):
    """Send it a signal; whether it was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def processes_naming(text):
    """Pid and command line of every process whose command line or environment holds `text`; zombies are none."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            if command and text.encode() in command + environment and int(folder.name) != os.getpid():
                found[int(folder.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found
