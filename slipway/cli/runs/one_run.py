"""`slipway logs`, `cancel` and `open`: the newest run of a model, or the one that `--run-id` names."""

import itertools
import webbrowser
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated
from urllib.parse import quote

import typer

from slipway.cli.airflow.api import Airflow, LogEvent, Run, Task
from slipway.cli.arguments import Name, settings_of
from slipway.cli.runs.fleets import members_of, refuse_fleet, runs_of
from slipway.cli.runs.follow import place
from slipway.cli.runs.releases import dag_of
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.fleet import FLEETS

RUNS_TO_SEARCH = 20
PAGES = "/slipway/models"
"""Where Airflow shows the pages of models (slipway/airflow/plugin.py)."""

OfRun = Annotated[str | None, typer.Option("--run-id", help="Id of a run of the model; default: the newest.")]


class Page(StrEnum):
    """What `slipway open` shows."""

    MODEL = "model"
    RUN = "run"


def logs(
    context: typer.Context,
    name: Name,
    step: Annotated[
        str | None,
        typer.Argument(
            help="Step of the release; default: the one that failed or runs, or else the last.", show_default=False
        ),
    ] = None,
    run_id: OfRun = None,
) -> None:
    """Print the log of a step of the newest run."""
    with settings_of(context).airflow() as airflow:
        refuse_fleet(airflow, name)
        run = _run(airflow, name, run_id)
        task = _task(airflow.tasks(run), step, run)
        echo(f"run {run.run_id}, step {task.task_id}: {task.state or 'waiting'}, try {task.try_number}", err=True)
        for line in _lines(airflow.log(run, task)):
            echo(line)


def cancel(context: typer.Context, name: Name, run_id: OfRun = None) -> None:
    """End a run that goes on. Its candidate is removed; what is live stays. Of a fleet, those of its models as well."""
    with settings_of(context).airflow() as airflow:
        members = members_of(airflow, name)
        dag_id = f"{FLEETS}{name}" if members else dag_of(name)
        runs = [airflow.run(dag_id, run_id)] if run_id else airflow.runs(dag_id, RUNS_TO_SEARCH)
        run = min(runs, key=lambda run: (run.ended, run.state != "running"), default=None)
        # the fleet's first, and then its members': it starts others while it goes on
        related = itertools.chain([run], runs_of(airflow, run, members)) if run else ()
        cancelled = False
        for each in (each for each in related if not each.ended):
            airflow.fail(each)
            what = "it starts no more releases" if each.dag_id.startswith(FLEETS) else "its candidate is removed"
            echo(f"cancelled: run {each.run_id}; {what}: {airflow.run_url(each)}")
            cancelled = True
        if not cancelled:
            raise InputError(
                f"no run of {name} goes on",
                found=f"{runs[0].run_id} is {runs[0].state}" if runs else "no run",
                remedy=f"See `slipway status {name}` for its runs.",
            )


def open_(
    context: typer.Context,
    name: Name,
    page: Annotated[Page, typer.Argument(help="The model's page, or its newest run in Airflow.")] = Page.MODEL,
    run_id: OfRun = None,
) -> None:
    """Show the model's page or a run of it in a browser, and print its address."""
    with settings_of(context).airflow() as airflow:
        refuse_fleet(airflow, name)
        if page is Page.RUN or run_id:
            address = airflow.run_url(_run(airflow, name, run_id))
        else:
            address = f"{airflow.address}{PAGES}/{quote(name, safe='')}"
    echo(address)
    webbrowser.open(address)


def _run(airflow: Airflow, name: str, run_id: str | None) -> Run:
    if run_id:
        return airflow.run(dag_of(name), run_id)
    if newest := airflow.runs(dag_of(name), 1):
        return newest[0]
    raise InputError(f"{name} has no run", remedy=f"Start one with `slipway release {name}`.")


def _task(tasks: Sequence[Task], step: str | None, run: Run) -> Task:
    """The step that was asked for, or the one that a person wants to read first."""
    ordered = sorted(tasks, key=place)
    if step is not None:
        for task in ordered:
            if task.task_id == step:
                return task
        raise InputError(
            f"run {run.run_id} has no step {step}",
            expected=", ".join(task.task_id for task in ordered),
            remedy="Name one of them.",
        )
    begun = [task for task in ordered if task.started_at is not None]
    for states in (("failed",), ("running", "deferred", "up_for_retry")):
        if at_work := [task for task in begun if task.state in states]:
            return at_work[0]
    if begun:
        return begun[-1]
    raise InputError(f"no step of run {run.run_id} has begun", found=f"the run is {run.state}", remedy="Try again.")


def _lines(events: Sequence[LogEvent]) -> list[str]:
    """What the step and Airflow wrote, without the marks for Airflow's own page."""
    texts = [event.event for event in events if event.event and not event.event.startswith("::")]
    errors = [f"{error.exc_type}: {error.exc_value}" for event in events for error in event.error_detail or []]
    return [*texts, *errors]
