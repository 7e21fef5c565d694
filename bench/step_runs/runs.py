"""Starts runs on a laptop's stack and waits for their ends."""

import time
from collections.abc import Collection
from pathlib import Path

from bench.step_runs import history
from bench.step_runs.history import Run
from local.stack import Stack
from slipway.cli.airflow.api import Airflow, NoSuchDagError, RunExistsError
from slipway.tasks.contracts.errors import UnavailableError

LIMIT_S, POLL_S = 300.0, 0.5
FINAL = "success"


def trigger(airflow: Airflow, dag_id: str, run_id: str) -> str:
    """Trigger a run, and return its id. Airflow may not have read the DAG yet, or may be too busy to answer."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return airflow.trigger(dag_id, {}, run_id).run_id
        except RunExistsError:  # of a request whose answer came too late
            return run_id
        except (NoSuchDagError, UnavailableError) as error:
            if time.monotonic() > deadline:
                raise
            if isinstance(error, UnavailableError):
                print(f"triggered again: {error}", flush=True)
            time.sleep(POLL_S)


def ended(stack: Stack, run_ids: Collection[str], limit_s: float = LIMIT_S) -> list[Run]:
    """The runs, once all of them have ended. The database is read, so that nobody asks the API server meanwhile.

    Raises:
        SystemExit: not all have ended after `limit_s`, or one did not succeed.
    """
    deadline = time.monotonic() + limit_s
    while history.count_ended(database(stack), run_ids) < len(run_ids):
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(run_ids)} runs took more than {limit_s:.0f} s")
        time.sleep(POLL_S)
    runs = history.read(database(stack), run_ids)
    for run in runs:
        if run.state != FINAL:
            raise SystemExit(f"run {run.run_id} is {run.state}: {[(task.task_id, task.state) for task in run.tasks]}")
    return runs


def database(stack: Stack) -> Path:
    """Airflow's database."""
    return stack.folder / "airflow" / "airflow.db"
