"""How many CPUs this process may use, which in a container is fewer than the machine has."""

import math
import os
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""`<quota> <period>` in microseconds, or `max <period>` (Linux kernel 6.12, admin-guide/cgroup-v2, "CPU")."""


def available_cpus(limit: Path = CGROUP_LIMIT) -> int:
    """The smaller of the affinity mask and the cgroup's quota, rounded up; at least 1."""
    return max(1, math.ceil(cpu_quota(limit)))


def cpu_quota(limit: Path = CGROUP_LIMIT) -> float:
    """The smaller of the affinity mask and the cgroup's quota, in CPUs."""
    allowed = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = limit.read_text().split()[:2]
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else min(allowed, int(quota) / int(period))
