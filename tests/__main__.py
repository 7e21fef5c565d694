"""Runs tests, each part of them in the environment whose code it tests, and ends with one line of counts.

    python3 -m tests                          every tier
    python3 -m tests unit dags                these tiers: unit, contracts, dags, cluster, local
    python3 -m tests tests/local/hub          a folder, a file, or a test by its id
    python3 -m tests unit -- -k keys          arguments after -- go to pytest; a path among them says what to run

When several parts have ended, up to five failed tests run once more, with nothing beside them. Those that pass then are
named as unstable; what they printed the first time stands above.

Environments are made as the parts need them. As many parts run side by side as CPUs and memory bear. What each printed,
and JUnit's reports, are in .slipway/tests; what took how long is in .slipway/test-durations.txt.
"""

import os
import sys
import time

from tests.runner import durations, schedule, temporary
from tests.runner.jobs import INSTALLER, NO_TESTS, TESTS_FAILED, Job, Making, Testing
from tests.runner.parts import UnknownPartError, chosen
from tests.support.paths import REPOSITORY

DURATIONS = REPOSITORY / ".slipway" / "test-durations.txt"
MOST_AGAIN = 5
"""More failures than these are no accident of one moment."""


def main(arguments: list[str]) -> int:
    """Run what is named before `--`, or by a path after it; 1 if a test failed or a part could not run."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:cut], arguments[cut + 1 :]
    paths = [option for option in options if (REPOSITORY / option.partition("::")[0]).exists()]
    options = [option for option in options if option not in paths]
    try:
        parts = chosen(paths or names)
    except UnknownPartError as error:
        print(f"tests: {error}", file=sys.stderr)
        return 2
    with temporary.folders(temporary.disk(), temporary.MEMORY) as folders:
        tests = [Testing.of(part, [*arguments, *options], folders) for part, arguments in parts.items()]
        return run(tests, ", ".join(names) or "all", has_options=bool(options))


def run(tests: list[Testing], what: str, *, has_options: bool) -> int:
    """Run the parts, each with its environments; 1 if a test failed or a part could not run."""
    environments = dict.fromkeys(name for job in tests for name in job.part.environments)
    jobs = [Making(INSTALLER), *map(Making, environments), *tests]
    tests[0].shown = len(tests) == 1
    for job in tests:
        job.report.unlink(missing_ok=True)
    began = time.monotonic()
    schedule.run(jobs, schedule.Room.of_this_machine(), ended=say)
    total = sum((durations.counts(job.report) for job in tests), durations.Counts())
    if len(tests) > 1 and total.failed <= MOST_AGAIN:
        total += once_more([job for job in tests if job.code == TESTS_FAILED])
    seconds = time.monotonic() - began
    written = durations.table(jobs, began, seconds, len(os.sched_getaffinity(0)))
    DURATIONS.write_text(written)
    if len(tests) > 1:
        print(written)
    print(f"tests: {total} in {seconds:.0f} s ({what})", flush=True)
    return 1 if any(job.code not in ((0, NO_TESTS) if has_options else (0,)) for job in jobs) else 0


def once_more(parts: list[Testing]) -> durations.Counts:
    """Run the failed tests of each part alone. A part all of whose pass then ends well; by how much the counts change."""
    change = durations.Counts()
    for part in parts:
        if not (failed := durations.failures(part.report)):  # it could not run
            continue
        again = part.again()
        again.report.unlink(missing_ok=True)
        schedule.run([again], schedule.Room(0, 0), ended=say)
        passed = failed & durations.passes(again.report)
        if again.is_done and passed == failed:
            part.code = again.code
        change += durations.Counts(passed=len(passed), failed=-len(passed))
        for test in sorted(passed):
            print(f"tests: unstable, failed and then passed alone: {test}", flush=True)
    return change


def say(job: Job) -> None:
    """Print what a part printed, and its counts; of an environment only what went wrong."""
    if not job.began_at:
        print(f"tests: {job.name}: not run, for an environment that it needs could not be made", flush=True)
    elif isinstance(job, Testing):
        printed = "" if job.shown else job.log.read_text(errors="replace")
        counts, seconds = durations.counts(job.report), job.ended_at - job.began_at
        print(f"{printed}tests: {job.name}: {counts} in {seconds:.0f} s", flush=True)
    elif not job.is_done:
        print(f"{job.log.read_text(errors='replace')}tests: {job.name}: failed", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
