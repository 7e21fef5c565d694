"""`python -m bench.airflow.startup`: how long `slipway` and its commands take to start, against Python's own start.

Each is a process of its own that prints its help, and `slipway status` one that finds no site. They take turns with
`python -c pass` of the same environment; medians are compared.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from slipway.cli.__main__ import COMMANDS

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PYTHON = REPOSITORY / ".slipway" / "envs" / "local" / "bin" / "python"
READINGS = 5
GOAL_S = 0.5
STARTS = {"": ("--help",), **{name: (name, "--help") for name in COMMANDS}, "status, no site": ("status",)}
REFUSED = {"status, no site": 65}
"""Exit codes other than 0."""


def main() -> int:
    """Print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=READINGS)
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}", end="; ")
    print(f"median of {arguments.readings}", flush=True)
    with tempfile.TemporaryDirectory() as home:
        for name, command in STARTS.items():
            pairs = [
                (
                    seconds([str(REPOSITORY / "bin" / "slipway"), *command], home, REFUSED.get(name, 0)),
                    seconds([str(PYTHON), "-c", "pass"], home, 0),
                )
                for _ in range(arguments.readings)
            ]
            ours_s, peers_s = (median(column) for column in zip(*pairs, strict=True))
            verdict = "met" if ours_s <= GOAL_S else "missed"
            print(
                f"{f'slipway {name}'.strip():24} {ours_s:.3f} s (goal {GOAL_S} s: {verdict}), python -c pass "
                f"{peers_s:.3f} s: {ours_s / peers_s:.1f} times",
                flush=True,
            )
    return 0


def seconds(command: list[str], home: str, expected: int) -> float:
    """Run a command in an environment without settings; how long it took.

    Raises:
        SystemExit: its exit code is not `expected`.
    """
    began = time.perf_counter()
    environment = {"PATH": os.defpath, "HOME": home}
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)
    taken_s = time.perf_counter() - began
    if done.returncode != expected:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr[-1000:]}")
    return taken_s


if __name__ == "__main__":
    sys.exit(main())
