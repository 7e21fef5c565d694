"""What Airflow's database of a laptop's stack says about runs: when they and their tasks began and ended."""

import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

RUNS = """
SELECT dag_id, run_id, state, start_date, end_date FROM dag_run WHERE end_date IS NOT NULL ORDER BY start_date
"""
TASKS = """
SELECT task_id, state, pid, start_date, end_date FROM task_instance WHERE dag_id = ? AND run_id = ?
"""
RESULTS = """SELECT task_id, value FROM xcom WHERE key = ? AND dag_id = ? AND run_id = ?"""
POD, RESULT = "pod_name", "return_value"
"""Keys of XComs that KubernetesPodOperator and StepOperator write."""


@dataclass(frozen=True)
class Task:
    """A task of a run; the times are in epoch seconds."""

    task_id: str
    state: str | None
    had_process: bool
    had_pod: bool
    work_s: float
    """Seconds from the first line of the pod's program to its last."""
    began_s: float
    ended_s: float


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    dag_id: str
    run_id: str
    state: str
    began_s: float
    ended_s: float
    tasks: tuple[Task, ...]

    @property
    def steps(self) -> tuple[Task, ...]:
        """The tasks that ran in a process, in the order of their beginnings; others were skipped by the plan."""
        return tuple(sorted((task for task in self.tasks if task.had_process), key=lambda task: task.began_s))

    @property
    def overhead_s(self) -> float:
        """Seconds of the run in which no pod's program ran, over the number of its steps."""
        return (self.ended_s - self.began_s - sum(task.work_s for task in self.steps)) / len(self.steps)

    @property
    def overhead_after_first_s(self) -> float:
        """The same from the end of the first step on, over the number of the others."""
        first, *others = self.steps
        return (self.ended_s - first.ended_s - sum(task.work_s for task in others)) / len(others)


def read(database: Path, run_ids: Collection[str] | None = None) -> list[Run]:
    """The runs of these ids that have ended, or all, in the order of their beginnings.

    Args:
        database: Airflow's, which it may be writing.
        run_ids: ids of the runs.
    """
    with _opened(database) as connection:
        rows = [row for row in connection.execute(RUNS) if run_ids is None or row[1] in run_ids]
        return [
            Run(dag_id, run_id, state, _seconds(began), _seconds(ended), tuple(_tasks(connection, dag_id, run_id)))
            for dag_id, run_id, state, began, ended in rows
        ]


def count_ended(database: Path, run_ids: Collection[str]) -> int:
    """How many of the runs of these ids have ended."""
    with _opened(database) as connection:
        return sum(row[1] in run_ids for row in connection.execute(RUNS))


@contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        yield connection


def _tasks(connection: sqlite3.Connection, dag_id: str, run_id: str) -> Iterator[Task]:
    pods = {task for task, _ in connection.execute(RESULTS, (POD, dag_id, run_id))}
    results = {task: _json(value) for task, value in connection.execute(RESULTS, (RESULT, dag_id, run_id))}
    for task_id, state, pid, began, ended in connection.execute(TASKS, (dag_id, run_id)):
        had_pod, result = task_id in pods, results.get(task_id)
        work_s = float(result["seconds"]) if had_pod and isinstance(result, dict) else 0.0
        yield Task(task_id, state, pid is not None, had_pod, work_s, _seconds(began), _seconds(ended))


def _json(value: object) -> object:
    """An XCom as Airflow 3.3.2 stores it: JSON, of a string that is JSON again if the API server wrote it."""
    while isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            break
    return value


def _seconds(text: str | None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() if text else 0.0
