"""Answers the question that a release's approval asks, and sees that Airflow takes the answer."""

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from slipway.cli.airflow.api import APPROVAL, Airflow, HasAnswerError, Run, Task
from slipway.tasks.contracts.errors import UnavailableError

RESUMED_WITHIN_S, LOOK_EVERY_S = 120.0, 1.0
"""How long the command waits for Airflow to resume a run with the answer, and how often it looks."""
SETTLED_S = 5.0
"""How old a question is before it is answered. Airflow 3.3.2 forgets an answer that comes before its scheduler has
noticed that the task waits: it takes the end of the process that asked for the end of the one that resumes, and tries
the task again, which asks again (apache/airflow issues 67287 and 72716)."""
APPROVED_NOW, REJECTED_BY = "it was approved", "approval: rejected by "


def answered(airflow: Airflow, run: Run, option: str, values: Mapping[str, str], timeout_s: float) -> str | None:
    """Answer the run's approval, and again each time that Airflow forgets the answer; None if the run was not resumed.

    Returns APPROVED_NOW, or why the approval failed; that begins with REJECTED_BY if a person rejected it.

    Raises:
        InputError: the run does not wait for an answer, or already has one.
        UnavailableError: Airflow did not take the answer.
    """
    deadline, forgot = time.monotonic() + timeout_s, False
    _settle(approval_of(airflow, run), deadline)
    airflow.answer(run, APPROVAL, option, values)
    while True:
        with suppress(UnavailableError):
            task = approval_of(airflow, run)
            if task and task.ended:
                return APPROVED_NOW if task.state == "success" else airflow.error(run, task).message
            # a task that somebody cleared has no state, and may ask about something else
            forgot = task is not None and (task.state == "up_for_retry" or (forgot and task.state is not None))
            if forgot and task and task.state == "awaiting_input":
                _settle(task, deadline)
                with suppress(HasAnswerError):  # somebody else was quicker
                    airflow.answer(run, APPROVAL, option, values)
                forgot = False
        if time.monotonic() >= deadline:
            return None
        time.sleep(LOOK_EVERY_S)


def _settle(task: Task | None, deadline: float) -> None:
    if task and task.state == "awaiting_input" and task.started_at:
        left_s = SETTLED_S - (datetime.now(UTC) - task.started_at).total_seconds()
        time.sleep(max(0.0, min(left_s, SETTLED_S, deadline - time.monotonic())))


def approval_of(airflow: Airflow, run: Run) -> Task | None:
    """The run's task that asks a person; None if Airflow lists none."""
    return next((task for task in airflow.tasks(run) if task.task_id == APPROVAL), None)
