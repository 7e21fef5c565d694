"""The table of durations: what each part took and waited for, and the slowest tests and fixtures."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.runner.jobs import Job, Testing

SLOWEST = 50
PHASES = ("setup", "call", "teardown")
FIXTURE = "fixture "
FAILED = frozenset({"failure", "error"})


@dataclass(frozen=True)
class Taken:
    """Seconds of one phase of a test, or of a fixture, which its first test waits for."""

    wall_s: float
    cpu_s: float
    what: str
    where: str

    def without(self, parts: list["Taken"]) -> "Taken":
        """The rest of it."""
        wall, cpu = sum(part.wall_s for part in parts), sum(part.cpu_s for part in parts)
        return Taken(self.wall_s - wall, self.cpu_s - cpu, self.what, self.where)


@dataclass(frozen=True)
class Counts:
    """How many tests ended how."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def counts(report: Path) -> Counts:
    """Of JUnit's report; without one, the part itself failed."""
    if not report.exists():
        return Counts(failed=1)
    found = Counts()
    for suite in ET.parse(report).getroot().iter("testsuite"):
        tests, failures, errors, skipped = (
            int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")
        )
        found += Counts(tests - failures - errors - skipped, failures + errors, skipped)
    return found


def failures(report: Path) -> set[str]:
    """The tests that failed."""
    return {test for test, ends in _ends(report).items() if ends & FAILED}


def passes(report: Path) -> set[str]:
    """The tests that passed."""
    return {test for test, ends in _ends(report).items() if not ends & {*FAILED, "skipped"}}


def _ends(report: Path) -> dict[str, set[str]]:
    """What JUnit's report, if there is one, says of each test, which has a second case if its teardown failed as well."""
    ends: dict[str, set[str]] = {}
    if not report.exists():
        return ends
    for case in ET.parse(report).getroot().iter("testcase"):
        ends.setdefault(f"{case.get('classname')}::{case.get('name')}", set()).update(part.tag for part in case)
    return ends


def readings(report: Path) -> Iterator[Taken]:
    """What tests/support/timing.py wrote of phases and fixtures, each fixture's seconds left out of its test's setup."""
    if not report.exists():
        return
    for case in ET.parse(report).getroot().iter("testcase"):
        where = f"{case.get('classname')}::{case.get('name')}"
        timed = [(found.get("name", ""), found.get("value", "")) for found in case.iter("property")]
        fixtures = [_taken(name, value, where) for name, value in timed if name.startswith(FIXTURE)]
        yield from fixtures
        for taken in (_taken(name, value, where) for name, value in timed if name in PHASES):
            yield taken.without(fixtures) if taken.what == "setup" else taken


def _taken(what: str, value: str, where: str) -> Taken:
    wall, cpu = map(float, value.split())
    return Taken(wall, cpu, what, where)


def table(jobs: Iterable[Job], began: float, seconds: float, cpus: int) -> str:
    """The table; what most people look for is at its head."""
    ended = sorted((job for job in jobs if job.began_at), key=lambda job: job.ended_at - job.began_at, reverse=True)
    cpu_s = sum(job.cpu_s for job in ended)
    lines = [
        f"{seconds:.0f} s of wall time; {cpu_s:.0f} CPU seconds of the {seconds * cpus:.0f} that {cpus} CPUs have in that time. A part waited",
        "for its environments, then in the queue for CPUs and memory; `declared` is what tests/runner/parts.py expects.",
        "",
        "  wall    CPU  environment  queue  declared  part",
        *(_line(job, began) for job in ended if isinstance(job, Testing)),
        *(_line(job, began) for job in ended if not isinstance(job, Testing) and job.ended_at - job.began_at > 1),
        "",
        f"The {SLOWEST} slowest phases of tests, and fixtures. CPU is that of pytest's process and of its children that ended.",
        "",
        "  wall    CPU  what                         test, or the first one that used the fixture",
    ]
    slowest = sorted(
        (taken for job in ended if isinstance(job, Testing) for taken in readings(job.report)),
        key=lambda taken: taken.wall_s,
        reverse=True,
    )
    lines += [f"{each.wall_s:7.1f} {each.cpu_s:6.1f}  {each.what:<28} {each.where}" for each in slowest[:SLOWEST]]
    return "\n".join(lines) + "\n"


def _line(job: Job, began: float) -> str:
    wall, environment, queue = job.ended_at - job.began_at, job.ready_at - began, job.began_at - job.ready_at
    return f"{wall:6.1f} {job.cpu_s:6.1f} {environment:12.1f} {queue:6.1f} {job.seconds:9.0f}  {job.name}"
