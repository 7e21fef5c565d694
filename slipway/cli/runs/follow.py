"""Watches a run until it ends: the state, duration and result of each step. It draws nothing."""

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from slipway.cli.airflow.api import APPROVAL, Airflow, Run, Task, progress_lines
from slipway.cli.airflow.patience import Silence
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.step_names import STEPS
from slipway.tasks.contracts.stored.release import StepResult

ORDER: tuple[str, ...] = (*STEPS[: STEPS.index("promote")], APPROVAL, *STEPS[STEPS.index("promote") :])
"""Order in which the tasks of a release are shown. Approval is a task, not a step."""

WORDS: dict[str | None, str] = {
    None: "waiting",
    "scheduled": "waiting",
    "queued": "queued",
    "running": "running",
    "deferred": "running",
    "restarting": "running",
    "up_for_retry": "retrying",
    "up_for_reschedule": "waiting",
    "awaiting_input": "approve?",
    "success": "done",
    "failed": "failed",
    "skipped": "skipped",
    "upstream_failed": "not run",
    "removed": "not run",
}
"""How the command names the task states of Airflow 3.3.2."""

AT_WORK = frozenset({WORDS["running"], WORDS["awaiting_input"]})

POLL_S = 1.0
FIRST_POLL_S = 0.1
POLL_GROWTH = 1.5
IDLE_S = 60.0
PROGRESS_AFTER_S = 3.0
LINE_CHARS = 200
AMOUNT = re.compile(r"(?P<done>\d+(?:\.\d+)?)(?: [kKMGT]?i?B)? of (?P<total>\d+(?:\.\d+)?) [kKMGT]?i?B\b")


@dataclass(frozen=True)
class Progress:
    """Progress of a long step, from its own log."""

    share: float
    text: str

    @classmethod
    def of(cls, line: str) -> "Progress | None":
        """Parse a line such as `model.safetensors: 42.1 of 100.0 MB, 12 MB/s, 5 s left`; None for any other line."""
        amounts = AMOUNT.search(line)
        if not amounts or not float(amounts["total"]):
            return None
        return cls(min(1.0, float(amounts["done"]) / float(amounts["total"])), line)


@dataclass(frozen=True)
class StepView:
    """One step of a run, as it is shown."""

    name: str
    state: str
    seconds: float | None = None
    text: str = ""
    progress: Progress | None = None


@dataclass(frozen=True)
class RunView:
    """A run at one moment."""

    run: Run
    steps: tuple[StepView, ...]
    tasks: Mapping[str, Task]
    results: Mapping[str, StepResult]


class Screen(Protocol):
    """Draws views of a run."""

    def show(self, view: RunView) -> None:
        """Draw the view, or what changed in it."""


@dataclass
class Follower:
    """Polls one run. Anything that can no longer change is read only once."""

    airflow: Airflow
    run: Run
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _results: dict[str, StepResult] = field(default_factory=dict)
    _read_results: set[tuple[str, int]] = field(default_factory=set)
    _progress: dict[str, tuple[float, Progress | None]] = field(default_factory=dict)
    _failures: dict[tuple[str, int], str] = field(default_factory=dict)

    def look(self) -> RunView:
        """The run as it is now.

        Raises:
            UnavailableError: Airflow does not answer.
        """
        # the run first: when it has ended, the tasks read after it have ended too
        self.run = self.airflow.run(self.run.dag_id, self.run.run_id)
        tasks = {task.task_id: task for task in self.airflow.tasks(self.run)}
        for task in tasks.values():
            self._read_result(task)
        steps = tuple(self._step(task) for task in sorted(tasks.values(), key=place))
        return RunView(self.run, steps, tasks, dict(self._results))

    def _read_result(self, task: Task) -> None:
        current_try = (task.task_id, task.try_number)
        if task.state not in {"success", "failed"} or current_try in self._read_results:
            return
        if result := self.airflow.result(self.run, task.task_id):
            self._results[task.task_id] = result
        self._read_results.add(current_try)

    def _step(self, task: Task) -> StepView:
        result = self._results.get(task.task_id)
        state = WORDS.get(task.state, task.state or "")
        if task.state == "success" and result and result.outcome == "stored":
            state = "stored"
        seconds = self._seconds(task)
        progress = self._running_progress(task, seconds) if state == "running" else None
        return StepView(task.task_id, state, seconds, self._text(task, result, progress), progress)

    def _text(self, task: Task, result: StepResult | None, progress: Progress | None) -> str:
        if task.ended:
            return result.summary if result else ""
        if task.state == "up_for_retry":
            return f"try {task.try_number} failed: {self._failure(task)}"
        if task.state == "awaiting_input":
            return "approve with `slipway approve`, or in Airflow"
        if progress:
            return progress.text
        return f"try {task.try_number}" if task.try_number > 1 else ""

    def _failure(self, task: Task) -> str:
        """Why the task's current try failed, in one line."""
        current_try = (task.task_id, task.try_number)
        if current_try not in self._failures:
            lines = self.airflow.error(self.run, task).message.splitlines() or [""]
            self._failures[current_try] = lines[0][:LINE_CHARS]
        return self._failures[current_try]

    def _seconds(self, task: Task) -> float | None:
        if task.started_at is None or task.state in {"skipped", "upstream_failed", "removed"}:
            return None
        return max(0.0, ((task.ended_at or self.now()) - task.started_at).total_seconds())

    def _running_progress(self, task: Task, seconds: float | None) -> Progress | None:
        """The newest progress line of the log, which is read every few seconds and never for a short step."""
        read_at, progress = self._progress.get(task.task_id, (0.0, None))
        if seconds is None or seconds - read_at < PROGRESS_AFTER_S:
            return progress
        reports = (Progress.of(line) for line in progress_lines(self.airflow.log(self.run, task)))
        newest = next((report for report in reports if report), progress)
        self._progress[task.task_id] = (seconds, newest)
        return newest


@dataclass
class Idle:
    """Gives up a run in which no step is at work, once Airflow could not read its DAG twice, a minute apart."""

    airflow: Airflow
    _asked_at: float = field(default_factory=time.monotonic)
    _was_unreadable: bool = False

    def check(self, view: RunView) -> None:
        """Look at the DAG if there is reason to.

        Raises:
            NoSuchDagError: Airflow cannot read it. The run goes on when it can.
        """
        if any(step.state in AT_WORK for step in view.steps):
            self._asked_at, self._was_unreadable = time.monotonic(), False
        elif time.monotonic() - self._asked_at > IDLE_S:
            self._asked_at = time.monotonic()
            with contextlib.suppress(UnavailableError):  # the next look says so too
                error = self.airflow.unreadable(view.run.dag_id)
                if error and self._was_unreadable:
                    raise error
                self._was_unreadable = error is not None


def follow(
    airflow: Airflow,
    run: Run,
    screen: Screen,
    *,
    until: Callable[[RunView], bool] = lambda view: view.run.ended,
    timeout_s: float | None = None,
    poll_s: float = POLL_S,
) -> RunView:
    """Show the run on `screen` until it ends, or until `until` returns True.

    Polls often at first, then every `poll_s`. While Airflow does not answer, as during its upgrade, this waits.

    Raises:
        TimeoutError: the run has not ended after `timeout_s`. It continues.
        NoSuchDagError: see Idle.
        UnavailableError: Airflow has not answered for ten minutes.
    """
    follower = Follower(airflow, run)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    idle = Idle(airflow)
    silence, pause_s = Silence(), FIRST_POLL_S
    while True:
        try:
            view = follower.look()
        except UnavailableError as error:
            silence.check(error)
        else:
            silence.over()
            screen.show(view)
            if until(view):
                return view
            idle.check(view)
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(f"run {run.run_id} has not ended after {timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = min(poll_s, pause_s * POLL_GROWTH)


def place(task: Task) -> tuple[int, str, str]:
    """A key that sorts tasks in the order in which a run takes them."""
    started = task.started_at.isoformat() if task.started_at else "~"
    return (ORDER.index(task.task_id) if task.task_id in ORDER else len(ORDER), started, task.task_id)
