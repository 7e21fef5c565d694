"""When each part of `make demo` began and ended, from records that Airflow, the cluster and the steps keep anyway."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from local.environments import ENVIRONMENTS
from local.private_files import write_private

if TYPE_CHECKING:
    from demo.observers import Pod
    from slipway.cli.airflow.api import Task
    from slipway.cli.runs.follow import RunView

FILE = "timeline.json"
COLUMNS = ("at", "pod requested", "started", "imports", "work", "noticed", "next began", "whole")
"""Seconds: since the command began, then from each time of a step to the next one, then from step to step."""


@dataclass(frozen=True)
class StepTimes:
    """A step with a process: the times in order, in seconds since the command began; None where no record has it.

    A step imports large toolkits while it works: `imports_ended` is when it had imported what every step needs.
    """

    step: str
    began: float
    pod_requested: float | None
    pod_started: float | None
    imports_ended: float | None
    work_ended: float | None
    end_noticed: float
    """Airflow's task ended."""
    next_began: float | None

    def seconds(self) -> tuple[float | None, ...]:
        """The table's row."""
        times = (
            self.began,
            self.pod_requested,
            self.pod_started,
            self.imports_ended,
            self.work_ended,
            self.end_noticed,
            self.next_began,
        )
        parts = [None if a is None or b is None else b - a for a, b in pairwise(times)]
        return self.began, *parts, (self.next_began or self.end_noticed) - self.began


@dataclass
class Timeline:
    """What is known so far."""

    began_at: float
    """When the command began, in seconds since the epoch."""
    marks: list[tuple[float, str]] = field(default_factory=list)
    """What the stack said, and the first promoted answer, each with its time since then."""
    runs: dict[str, list[StepTimes]] = field(default_factory=dict)

    def now(self) -> float:
        """Seconds since the command began."""
        return time.time() - self.began_at

    def mark(self, text: str) -> float:
        """Note that something was reached now; return the time."""
        self.marks.append((now := self.now(), text))
        return now

    def add(self, view: "RunView", pods: "Mapping[str, Pod]") -> None:
        """Add a run that has ended, and its pods by step."""
        self.runs[view.run.run_id] = list(self._steps(view, pods))

    def _steps(self, view: "RunView", pods: "Mapping[str, Pod]") -> Iterable[StepTimes]:
        tasks = sorted((task for task in view.tasks.values() if _had_process(task)), key=_began)
        nexts = [self._since(_began(task)) for task in tasks[1:]]
        for task, next_began in zip(tasks, (*nexts, None), strict=True):
            pod, result = pods.get(task.task_id), view.results.get(task.task_id)
            worked = result.started_at.timestamp() if pod and result else None
            assert task.ended_at is not None
            yield StepTimes(
                task.task_id,
                self._since(_began(task)),
                self._since(pod.requested) if pod else None,
                self._since(pod.started) if pod and pod.started else None,
                self._since(worked) if worked else None,
                self._since(worked + result.seconds) if worked and result else None,
                self._since(task.ended_at.timestamp()),
                next_began,
            )

    def _since(self, at: float) -> float:
        return round(at - self.began_at, 3)

    def environments(self) -> dict[str, tuple[float, float]]:
        """When each environment that this command built was begun and finished."""
        stamps = {path.parent.name: path for path in ENVIRONMENTS.glob("*/made-from")}
        times = {
            name: (self._since((stamp.parent / "pyvenv.cfg").stat().st_mtime), self._since(stamp.stat().st_mtime))
            for name, stamp in stamps.items()
        }
        return {name: span for name, span in sorted(times.items(), key=lambda item: item[1]) if span[0] >= 0}

    def write(self, folder: Path) -> Path:
        """Write everything as JSON."""
        document = {
            "began_at": self.began_at,
            "environments": self.environments(),
            "marks": self.marks,
            "runs": {run: [asdict(step) for step in steps] for run, steps in self.runs.items()},
        }
        write_private(folder / FILE, json.dumps(document, indent=1))
        return folder / FILE

    def table(self) -> Table:
        """The first run's steps, and a line for everything else."""
        table = Table(title="where the time went, in seconds", title_justify="left", title_style="bold")
        table.add_column("")
        for name in COLUMNS:
            table.add_column(name, justify="right")
        for name, (began, ended) in self.environments().items():
            table.add_row(f"environment {name}", f"{began:.1f}", *[""] * (len(COLUMNS) - 2), f"{ended - began:.1f}")
        for at, text in self.marks:
            table.add_row(text, f"{at:.1f}")
        for number, (run, steps) in enumerate(self.runs.items()):
            for step in () if number else steps:
                table.add_row(step.step, *("" if each is None else f"{each:.1f}" for each in step.seconds()))
            if steps:
                table.add_row(f"{run}: {len(steps)} steps", *_sums(steps), style="bold")
        return table


def _sums(steps: list[StepTimes]) -> list[str]:
    columns = list(zip(*(step.seconds() for step in steps), strict=True))
    sums = [sum(each or 0 for each in column) for column in columns[1:-1]]
    return [f"{each:.1f}" for each in (steps[0].began, *sums, steps[-1].end_noticed - steps[0].began)]


def _had_process(task: "Task") -> bool:
    return task.state in {"success", "failed"} and None not in (task.started_at, task.ended_at)


def _began(task: "Task") -> float:
    assert task.started_at is not None
    return task.started_at.timestamp()
