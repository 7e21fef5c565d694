"""Decides which job begins next: as many as CPUs and memory bear, those on which the longest chain of jobs waits first."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from tests.runner.jobs import Job
from tests.runner.temporary import available_mb

SLACK_CPUS = 1.5
"""CPUs that are given away beyond those there are: jobs that compute also wait now and then. With 0.75, two CPUs were busy
for 86 % of the time; with 1.5, for 95 %; with 3, the longest job took a seventh longer. Twice as many are given away where
others keep all CPUs busy, since whoever has more sessions there gets a larger share of the CPUs (sched(7))."""
LOOK_S = 0.5
"""How long the CPUs are watched before the first job begins."""
LEFT_MB = 1000
STAT = Path("/proc/stat")


def busy_share(before: str, after: str) -> float:
    """The share of their time, 0 to 1, that all CPUs computed between two readings of /proc/stat; 0 if no time is counted."""
    passed = [late - early for early, late in zip(_ticks(before), _ticks(after), strict=True)]
    busy = sum(passed) - sum(passed[3:5])  # idle and iowait
    return busy / max(1, sum(passed))


def _ticks(reading: str) -> list[int]:
    """Clock ticks of all CPUs (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq and steal."""
    return [int(word) for word in reading.split("\n", 1)[0].split()[1:9]]


@dataclass(frozen=True)
class Room:
    """What the jobs that run at once may take together."""

    cpus: float
    memory_mb: float

    @classmethod
    def of_this_machine(cls) -> "Room":
        """CPUs of this process and what is given away beyond them, and memory that is available now."""
        before = STAT.read_text()
        time.sleep(LOOK_S)
        slack = SLACK_CPUS * (1 + busy_share(before, STAT.read_text()))
        return cls(len(os.sched_getaffinity(0)) + slack, available_mb() - LEFT_MB)

    def holds(self, job: Job, running: Iterable[Job]) -> bool:
        """Whether the job fits beside those that run; alone, any does."""
        others = list(running)
        cpus, memory = sum(other.cpus for other in others), sum(other.memory_mb for other in others)
        return not others or (cpus + job.cpus <= self.cpus and memory + job.memory_mb <= self.memory_mb)


def run(jobs: list[Job], room: Room, *, ended: Callable[[Job], None]) -> None:
    """Run every job whose needs end well; call `ended` after each."""
    began = time.monotonic()
    by_name, order = {job.name: job for job in jobs}, by_urgency(jobs)
    waiting, running = list(order), dict[Future[None], Job]()
    # the outer one is for a second interrupt, while the executor waits for jobs that are ending
    with _stopping(jobs), ThreadPoolExecutor(len(jobs)) as threads, _stopping(jobs):
        while waiting or running:
            for job in [job for job in waiting if any(_failed(by_name[name]) for name in job.needs)]:
                waiting.remove(job)
                job.code = 1
                ended(job)
            for job in list(waiting):
                if all(by_name[name].is_done for name in job.needs):
                    job.ready_at = job.ready_at or max((by_name[name].ended_at for name in job.needs), default=began)
                    if room.holds(job, running.values()):
                        waiting.remove(job)
                        running[threads.submit(job.run)] = job
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                future.result()
                ended(job)


@contextlib.contextmanager
def _stopping(jobs: Iterable[Job]) -> Iterator[None]:
    """Within it, who interrupts this process interrupts the jobs that a terminal does not."""
    try:
        yield
    except KeyboardInterrupt:
        for job in jobs:
            job.stop()
        raise


def by_urgency(jobs: list[Job]) -> list[Job]:
    """The job first after whose begin the most seconds must still pass."""

    def seconds(job: Job) -> float:
        return job.seconds + max((seconds(other) for other in jobs if job.name in other.needs), default=0.0)

    return sorted(jobs, key=seconds, reverse=True)


def _failed(job: Job) -> bool:
    return job.code is not None and not job.is_done
