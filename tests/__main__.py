"""Runs tests, each part of them in the environment whose code it tests, and ends with one line of counts.

    python3 -m tests                          every tier
    python3 -m tests unit dags                these tiers: unit, contracts, dags, cluster, local
    python3 -m tests tests/local/hub          a folder, a file, or a test by its id
    python3 -m tests unit -- -k keys          arguments after -- go to pytest; a path among them says what to run

Environments are made as the parts need them. As many parts run side by side as CPUs and memory bear. What each printed,
and JUnit's reports, are in .slipway/tests; what took how long is in .slipway/test-durations.txt.
"""

import os
import sys
import time

from tests.runner import REPORTS, durations, schedule
from tests.runner.jobs import INSTALLER, NO_TESTS, Job, Making, Testing
from tests.runner.parts import UnknownPartError, chosen
from tests.support.paths import REPOSITORY

DURATIONS = REPOSITORY / ".slipway" / "test-durations.txt"


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
    tests = [Testing.of(part, [*arguments, *options]) for part, arguments in parts.items()]
    environments = dict.fromkeys(name for part in parts for name in part.environments)
    jobs = [Making(INSTALLER), *map(Making, environments), *tests]
    tests[0].shown = len(tests) == 1
    for job in tests:
        job.report.unlink(missing_ok=True)
    REPORTS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    schedule.run(jobs, schedule.Room.of_this_machine(), ended=say)
    seconds = time.monotonic() - began
    written = durations.table(jobs, began, seconds, len(os.sched_getaffinity(0)))
    DURATIONS.write_text(written)
    if len(tests) > 1:
        print(written)
    total = sum((durations.counts(job.report) for job in tests), durations.Counts())
    print(f"tests: {total} in {seconds:.0f} s ({', '.join(names) or 'all'})", flush=True)
    return 1 if any(job.code not in ((0, NO_TESTS) if options else (0,)) for job in jobs) else 0


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
