"""What the tasks of a run reported to Airflow."""

from typing import TYPE_CHECKING

from slipway.tasks.contracts.stored.release import StepResult

if TYPE_CHECKING:
    from airflow.sdk import Context

RESULT_KEY = "return_value"
NEVER_STARTED = frozenset({"upstream_failed", "skipped", "removed"})


def reported(context: "Context", task: str) -> StepResult | None:
    """The result of a task in this attempt of the run; None if it has none.

    A task of a run that was cleared keeps its result until it starts again, which one behind a failed task never does
    (Airflow 3.3.2 deletes results in execution_api/routes/task_instances.py).
    """
    ti, run_id = context["ti"], context["run_id"]
    value = ti.xcom_pull(task_ids=task, key=RESULT_KEY)
    if not isinstance(value, dict):
        return None
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task], run_ids=[run_id]).get(run_id, {})
    return None if states.get(task) in NEVER_STARTED else StepResult.model_validate(value)
