"""CPU seconds of processes, as proc_pid_stat(5) has them."""

import os
from pathlib import Path


def cpu_s(process: int) -> float:
    """What a process has used so far, all its threads together."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime


def children(process: int) -> list[int]:
    """The processes that it started, whichever of its threads did, and that still run."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def descendants(process: int) -> list[int]:
    """Its children, theirs, and so on."""
    found = children(process)
    for each in found:
        found += children(each)
    return found
