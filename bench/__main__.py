"""`python -m bench`: every benchmark that needs no stack that is up, one after the other, and at the end every goal.

The sizes are quick ones; `--full` transfers files of 4 GB.
Exits with 1 if a benchmark could not run; a missed goal is a result.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, the environment that runs it, and its options, which differ with `--full`."""

    module: str
    """Within bench."""
    environment: str
    quick: str | None
    """None: only with --full."""
    full: str | None = ""
    """None: only without."""

    @property
    def name(self) -> str:
        """What the user calls it: its module without the room."""
        return self.module.rpartition(".")[2]


BENCHMARKS = (
    Benchmark("airflow.plan", "local", ""),
    Benchmark("airflow.parse", "tasks", "--specs 1 1000 --readings 3", "--specs 1 40 1000"),
    Benchmark("airflow.orchestration", "tasks", None),
    Benchmark("airflow.startup", "local", "--readings 3", ""),
    Benchmark("airflow.status", "local", "--readings 3", ""),
    Benchmark("airflow.pages", "airflow", "--readings 3", ""),
    Benchmark("airflow.step_imports", "local", ""),
    Benchmark("transfer.transfer", "tasks", "--set 8x64MB 200x64kB", "--size full"),
    Benchmark("transfer.transfer", "tasks", None, "--mb-s 100 --set 8x64MB"),
    Benchmark("transfer.transfer", "tasks", "--moto --set 8x16MB --rounds 3", "--moto --size full"),
    Benchmark("airflow.pod_start", "tasks", "--rounds 3", "--size full"),
    Benchmark("serving.serving", "tasks", ""),
    Benchmark("serving.serving", "tasks", None, "--smollm2"),
    Benchmark("serving.aiperf", "tasks", "--rounds 3 --answers 4"),
    Benchmark("serving.hostile", "tasks", None, "--requests 2000"),
    Benchmark("serving.fairness", "tasks", None),
    Benchmark("serving.front", "local", None),
    Benchmark("serving.openai", "local", None),
    Benchmark("serving.gate_statistics", "tasks", None),
)
"""Interleaved rounds are five where --rounds or --readings do not say three."""
NAMES = sorted({each.name for each in BENCHMARKS})
QUICK = {each.name for each in BENCHMARKS if each.quick is not None}
"""The others run with their full options where they are named."""
GOAL = "goal "


def main() -> int:
    """Run them, print what they print, and repeat the lines that name a goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="files of 4 GB, a model of 135 million weights")
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="only these")
    arguments = parser.parse_args()
    goals: list[str] = []
    broken: list[str] = []
    started = time.monotonic()
    for each in BENCHMARKS:
        options = each.full if arguments.full or (arguments.names and each.name not in QUICK) else each.quick
        if options is None or each.name not in (arguments.names or NAMES):
            continue
        title = f"{each.name} {options}".rstrip()
        print(f"\n== bench.{each.module} {options}".rstrip() + f", load {os.getloadavg()[0]:.1f}", flush=True)
        began = time.monotonic()
        code, lines = run(each, options)
        print(f"   {time.monotonic() - began:.0f} s", flush=True)
        goals += [f"{title}: {line.strip()}" for line in lines if GOAL in line]
        if code:
            broken.append(title)
    print(f"\n== goals, after {(time.monotonic() - started) / 60:.1f} minutes")
    print("\n".join(goals))
    if broken:
        print(f"bench: {', '.join(broken)} could not run", file=sys.stderr)
    return 1 if broken else 0


def run(benchmark: Benchmark, options: str) -> tuple[int, list[str]]:
    """Run one, shown as it goes: its exit code and its lines."""
    python = str(ENVIRONMENTS / benchmark.environment / "bin" / "python")
    command = [python, "-u", "-m", f"bench.{benchmark.module}", *options.split()]
    lines: list[str] = []
    if not Path(python).exists():
        print(f"{python} is missing. Run `make bench`, or `python3 -m local.environments {benchmark.environment}`.")
        return 1, lines
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return process.returncode, lines


if __name__ == "__main__":
    sys.exit(main())
