"""What bench.airflow.queued_releases and bench.airflow.step_overhead calculate: overhead, lost steps, growth of memory."""

import sqlite3

import pytest

from bench.airflow.queued_releases import problems
from bench.step_runs import history
from bench.step_runs.history import Run, Task
from bench.step_runs.laptop import plan_result
from bench.step_runs.pods import Pod
from bench.step_runs.services import halves
from tasks.contracts.stored.plan import Plan
from tasks.contracts.stored.release import StepResult

EXPECTED = {("release__a", "r1"): ("plan", "gate")}


def task(name, began_s, ended_s, *, work_s=0.0, process=True, tries=1):
    return Task(name, "success", tries, process, process, work_s, began_s, ended_s)


def run(*tasks, began_s=0.0, ended_s=10.0):
    return Run("release__a", "r1", "success", began_s, ended_s, tasks)


def pods(*steps, phase="Succeeded", deleted=True):
    return [Pod(f"pod-{step}", "r1", step, phase, deleted) for step in steps]


WHOLE = run(task("plan", 1, 4, work_s=2), task("gate", 5, 9, work_s=1), task("approval", 4, 4, process=False))


def test_overhead_is_the_time_beside_the_work_of_pods_for_each_task_that_ran():
    assert WHOLE.overhead_s == (10 - 3) / 2
    assert WHOLE.overhead_after_first_s == (10 - 4 - 1) / 1


def test_rates_and_overlaps_count_from_the_first_beginning_to_the_last_end():
    later = run(task("plan", 6, 8), began_s=5.0, ended_s=20.0)

    assert history.steps_per_second([WHOLE, later]) == 3 / 20
    assert history.most_at_once([WHOLE, later]) == 2
    assert history.most_at_once([WHOLE, run(began_s=10.0, ended_s=11.0)]) == 1


def test_a_queue_in_which_each_step_had_one_pod_has_no_problems():
    assert problems([WHOLE], EXPECTED, pods("plan", "gate")) == []


@pytest.mark.parametrize(
    ("runs", "seen", "problem"),
    [
        ([WHOLE], pods("plan"), "gate of run r1 had 0 pods"),
        ([WHOLE], pods("plan", "gate", "gate"), "gate of run r1 had 2 pods"),
        ([WHOLE], pods("plan", "gate", "build"), "build of run r1 had a pod, expected none"),
        ([WHOLE], [*pods("plan"), *pods("gate", phase="Failed")], "pod pod-gate is Failed"),
        ([WHOLE], [*pods("plan"), *pods("gate", deleted=False)], "pod pod-gate was not deleted"),
        ([], pods("plan", "gate"), "run r1 is missing"),
        ([run(task("plan", 1, 4, tries=2))], pods("plan", "gate"), "plan of run r1 took 2 tries"),
    ],
)
def test_each_lost_or_repeated_step_is_named(runs, seen, problem):
    assert problems(runs, EXPECTED, seen) == [problem]


def test_memory_is_compared_between_the_halves_of_the_time():
    assert halves([1, 5, 2, 3]) == (5, 3)
    assert halves([1]) == (1, 1)


def test_the_plan_of_each_kind_is_one_that_the_operator_reads():
    plans = {
        kind: Plan.model_validate(StepResult.model_validate(plan_result("a", kind)).data["plan"])
        for kind in ("full", "stored", "nothing")
    }

    assert [len(plan.missing) for plan in plans.values()] == [5, 0, 0]
    assert [plan.action for plan in plans.values()] == ["release", "release", "nothing"]


def test_runs_are_read_from_airflows_tables(tmp_path):
    database = tmp_path / "airflow.db"
    with sqlite3.connect(database) as connection:
        connection.executescript("""
            CREATE TABLE dag_run (dag_id, run_id, state, start_date, end_date);
            CREATE TABLE task_instance (dag_id, run_id, task_id, state, try_number, pid, start_date, end_date);
            CREATE TABLE xcom (dag_id, run_id, task_id, key, value);
            INSERT INTO dag_run VALUES
                ('release__a', 'r1', 'success', '2026-01-01 00:00:00.000000', '2026-01-01 00:00:10.000000'),
                ('release__a', 'r2', 'running', '2026-01-01 00:00:00.000000', NULL);
            INSERT INTO task_instance VALUES
                ('release__a', 'r1', 'plan', 'success', 1, 42, '2026-01-01 00:00:01', '2026-01-01 00:00:04'),
                ('release__a', 'r1', 'approval', 'skipped', 0, NULL, '2026-01-01 00:00:04', '2026-01-01 00:00:04');
            INSERT INTO xcom VALUES
                ('release__a', 'r1', 'plan', 'pod_name', '"pod"'),
                ('release__a', 'r1', 'plan', 'return_value', '"{\\"seconds\\": 0.5}"');
        """)
    connection.close()

    (seen,) = history.read(database)

    assert [(each.task_id, each.work_s) for each in seen.steps] == [("plan", 0.5)]
    assert (seen.pods, seen.overhead_s) == (("plan",), 9.5)
    assert history.count_ended(database, {"r1", "r2"}) == 1
