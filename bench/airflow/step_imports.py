"""`python -m bench.airflow.step_imports`: what each step of a release imports, and what that costs in CPU seconds.

Runs a release by hand, each step in its own environment, against a stack without Airflow of its own. Each import that
takes 0.3 CPU seconds or more, with what it imports in turn, is named below its step. Times are of the thread that
imports, so that they mean the same on a busy machine; noting them adds about a tenth.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.environments import ENVIRONMENTS
from local.stack import REPOSITORY, Stack
from slipway.tasks.adapters.store.s3 import S3ObjectStore
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.site.signing import KEY_VARIABLE
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.document_files import read_document

SPEC = REPOSITORY / "specs" / "demo.yaml"
RUN = "step-imports"
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
NAMED_S = 0.3
OTHER_IMAGE = {"assemble": "triton", "fetch-repository": "triton"}
AFTER_PLAN = (
    *("download", "quantize", "build", "assemble", "publish", "fetch-repository", "roll-out", "smoke-test"),
    *("benchmark", "gate", "promote"),
)
"""In the order of the DAG; the serving pod runs fetch-repository."""
RECORDER = Path(__file__).resolve().parent / "import_profile"


@dataclass(frozen=True)
class Process:
    """The imports of one process of a step."""

    program: str
    cpu_s: float
    rows: list[tuple[str, int, float]]
    """Name, depth and CPU seconds of each import, in the order of their ends."""

    @property
    def imports_s(self) -> float:
        """CPU seconds of all its imports."""
        return sum(seconds for _, depth, seconds in self.rows if depth == 0)

    def named(self, least_s: float) -> Iterator[str]:
        """A line for each import that costs that much, below the one that caused it."""
        for name, depth, seconds in reversed(self.rows):
            if seconds >= least_s:
                yield f"{'  ' * depth}{name} {seconds:.1f}"


class Steps:
    """Runs steps as their pods do, with a recorder of imports."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._folder = folder
        own = stack.client_environment(airflow=False)
        self._environment = {**os.environ, **own, KEY_VARIABLE: stack.settings.signing_key}
        self._place = read_contract(Site, stack.site(), "the stack's site").object_store

    def planned_release(self) -> str:
        """The URI of the release that plan wrote."""
        layout, name = Layout(self._place.root), read_document(SPEC)["name"]
        os.environ |= {name: self._environment[name] for name in CREDENTIALS}
        document = S3ObjectStore(self._place).read_bytes(layout.plan(name, RUN))
        return str(json.loads(document)["release"])

    def run(self, step: str, *arguments: str) -> tuple[float, list[Process]]:
        """Run one; its wall seconds and its processes.

        Raises:
            SystemExit: it failed.
        """
        notes = self._folder / step
        notes.mkdir()
        environment = {
            **self._environment,
            "SLIPWAY_IMPORTS": str(notes),
            "SLIPWAY_SCRATCH": str(self._folder),
            "PYTHONPATH": f"{RECORDER}:{REPOSITORY}",
            "PATH": f"{ENVIRONMENTS / OTHER_IMAGE.get(step, 'tasks') / 'bin'}:{os.environ['PATH']}",
        }
        began = time.monotonic()
        done = subprocess.run(
            ["python", "-m", "slipway.tasks", step, *arguments],
            env=environment,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{step} exited with {done.returncode}:\n{done.stdout[-2000:]}")
        return time.monotonic() - began, [_read(file) for file in sorted(notes.iterdir())]


def main() -> int:
    """Run the release and print its imports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--least-s", type=float, default=NAMED_S, help="the cheapest import that is named")
    least_s = parser.parse_args().least_s
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        stack = Stack(folder / "stack")
        try:
            stack.up(lambda _: None, airflow=False)
            measure(Steps(stack, folder), folder, least_s)
        finally:
            stack.down()
    return 0


def measure(steps: Steps, folder: Path, least_s: float) -> None:
    """Run plan and what follows; print each."""
    totals = show("plan", *steps.run("plan", "--spec", str(SPEC), "--run", RUN), least_s)
    release = steps.planned_release()
    for step in AFTER_PLAN:
        more = ("--to", str(folder / "repository")) if step == "fetch-repository" else ()
        shown = show(step, *steps.run(step, "--release", release, *more), least_s)
        totals = [sum(pair) for pair in zip(totals, shown, strict=True)]
    print(f"{'all steps':16} {totals[0]:6.1f} s, {totals[1]:6.1f} CPU s, {totals[2]:6.1f} of them imports")


def show(step: str, wall_s: float, processes: list[Process], least_s: float) -> list[float]:
    """Print a step; its wall seconds, CPU seconds and those of its imports."""
    cpu_s, imports_s = (
        sum(column) for column in zip(*((each.cpu_s, each.imports_s) for each in processes), strict=True)
    )
    print(f"{step:16} {wall_s:6.1f} s, {cpu_s:6.1f} CPU s, {imports_s:6.1f} of them imports", flush=True)
    for process in processes:
        print(f"  {process.program}: {process.cpu_s:.1f} CPU s")
        for line in process.named(least_s):
            print(f"    {line}")
    return [wall_s, cpu_s, imports_s]


def _read(file: Path) -> Process:
    noted: dict[str, Any] = json.loads(file.read_bytes())
    program = " ".join(Path(word).name if "/" in word else word for word in noted["argv"][1:4])
    return Process(program, noted["cpu_s"], [tuple(row) for row in noted["rows"]])


if __name__ == "__main__":
    sys.exit(main())
