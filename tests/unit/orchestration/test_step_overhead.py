"""What bench.airflow.step_overhead calculates."""

import sqlite3

from bench.step_runs import history
from bench.step_runs.history import Run, Task
from bench.step_runs.laptop import plan_result
from slipway.tasks.contracts.stored.plan import Plan
from slipway.tasks.contracts.stored.release import StepResult


def task(name, began_s, ended_s, *, work_s=0.0, process=True):
    return Task(name, "success", process, process, work_s, began_s, ended_s)


WHOLE = Run(
    "release__a",
    "r1",
    "success",
    0.0,
    10.0,
    (task("plan", 1, 4, work_s=2), task("gate", 5, 9, work_s=1), task("approval", 4, 4, process=False)),
)


def test_overhead_is_the_time_beside_the_work_of_pods_for_each_task_that_ran():
    assert WHOLE.overhead_s == (10 - 3) / 2
    assert WHOLE.overhead_after_first_s == (10 - 4 - 1) / 1


def test_the_plan_is_one_that_the_operator_reads():
    plan = Plan.model_validate(StepResult.model_validate(plan_result()).data["plan"])

    assert (plan.action, len(plan.missing)) == ("release", 5)


def test_runs_are_read_from_airflows_tables(tmp_path):
    database = tmp_path / "airflow.db"
    with sqlite3.connect(database) as connection:
        connection.executescript("""
            CREATE TABLE dag_run (dag_id, run_id, state, start_date, end_date);
            CREATE TABLE task_instance (dag_id, run_id, task_id, state, pid, start_date, end_date);
            CREATE TABLE xcom (dag_id, run_id, task_id, key, value);
            INSERT INTO dag_run VALUES
                ('release__a', 'r1', 'success', '2026-01-01 00:00:00.000000', '2026-01-01 00:00:10.000000'),
                ('release__a', 'r2', 'running', '2026-01-01 00:00:00.000000', NULL);
            INSERT INTO task_instance VALUES
                ('release__a', 'r1', 'plan', 'success', 42, '2026-01-01 00:00:01', '2026-01-01 00:00:04'),
                ('release__a', 'r1', 'approval', 'skipped', NULL, '2026-01-01 00:00:04', '2026-01-01 00:00:04');
            INSERT INTO xcom VALUES
                ('release__a', 'r1', 'plan', 'pod_name', '"pod"'),
                ('release__a', 'r1', 'plan', 'return_value', '"{\\"seconds\\": 0.5}"');
        """)
    connection.close()

    (seen,) = history.read(database)

    assert [(each.task_id, each.had_pod, each.work_s) for each in seen.steps] == [("plan", True, 0.5)]
    assert seen.overhead_s == 9.5
    assert history.count_ended(database, {"r1", "r2"}) == 1
