"""`python -m bench`: every benchmark that needs no stack that is up, one after the other, and at the end every goal.

The sizes are quick ones; `--full` reads 1,000 specs, transfers files of 4 GB, queues 200 releases and runs bench.scale.
Exits with 1 if a benchmark could not run; a missed goal is a result.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
QUICK = {
    "parse": ("tasks",),
    "plan": ("local",),
    "gate_statistics": ("tasks",),
    "transfer": ("tasks",),
    "pod_start": ("tasks",),
    "front": ("local",),
    "openai": ("local",),
    "aiperf": ("tasks",),
    "chunk_rate": ("tasks", "--rates", "1600", "3200", "4800", "6400"),
    "serving": ("tasks", "--rounds", "3"),
    "orchestration": ("tasks", "--specs", "40", "--runs", "10"),
    "startup": ("local", "--readings", "3"),
    "step_overhead": ("local", "--runs", "2"),
    "queued_releases": ("local", "--quick"),
}
"""The environment of each benchmark, and its options."""
FULL = QUICK | {
    "parse": ("tasks", "--specs", "1", "40", "1000"),
    "transfer": ("tasks", "--size", "full", "--rounds", "5"),
    "pod_start": ("tasks", "--size", "full", "--rounds", "5"),
    "orchestration": ("tasks",),
    "chunk_rate": ("tasks",),
    "serving": ("tasks", "--smollm2"),
    "startup": ("local",),
    "step_overhead": ("local", "--notice-s", "0", "1"),
    "queued_releases": ("local",),
    "scale": ("dev",),
}
GOAL = "goal "


def main() -> int:
    """Run them, print what they print, and repeat the lines that name a goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="1,000 specs, files of 4 GB and 200 releases")
    parser.add_argument("names", nargs="*", choices=[*QUICK, []], help="only these")
    arguments = parser.parse_args()
    chosen = FULL if arguments.full else QUICK
    goals: list[str] = []
    broken: list[str] = []
    for name in arguments.names or chosen:
        print(f"\n== bench.{name}, load {os.getloadavg()[0]:.1f}", flush=True)
        began = time.monotonic()
        code, lines = run(name, *chosen[name])
        print(f"   {time.monotonic() - began:.0f} s", flush=True)
        goals += [f"{name}: {line.strip()}" for line in lines if GOAL in line]
        if code:
            broken.append(name)
    print("\n== goals")
    print("\n".join(goals))
    if broken:
        print(f"bench: {', '.join(broken)} could not run", file=sys.stderr)
    return 1 if broken else 0


def run(name: str, environment: str, *options: str) -> tuple[int, list[str]]:
    """Run one, shown as it goes: its exit code and its lines."""
    command = [str(ENVIRONMENTS / environment / "bin" / "python"), "-u", "-m", f"bench.{name}", *options]
    lines: list[str] = []
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return process.returncode, lines


if __name__ == "__main__":
    sys.exit(main())
