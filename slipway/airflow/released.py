"""The last task of a release, which decides whether the run succeeded."""

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseOperator

from slipway.airflow.refusals import refused
from slipway.tasks.contracts.stored.plan import Plan
from slipway.tasks.contracts.stored.release import StepResult

if TYPE_CHECKING:
    from airflow.sdk import Context

XCOM_KEY = "return_value"
FAILED = "failed"


class Released(BaseOperator):
    """Succeeds if the release was promoted, is skipped if there was nothing to release, and fails otherwise.

    It is a teardown task like roll-back. Airflow ignores teardown tasks when it decides how a run ended, unless they
    are set to fail it; and a run that a person marks as failed skips every task except its teardown tasks, so that
    Airflow would call it a success if its last ordinary task was skipped (Airflow 3.3, DagRun.update_state).
    """

    def __init__(self, *, name: str, **task: Any) -> None:
        """`name` is the name of the model."""
        super().__init__(retries=0, **task)
        self.name = name

    def execute(self, context: "Context") -> None:
        """Read the result of promote, or else of plan.

        Raises:
            AirflowSkipException: there was nothing to release.
            Refusal: the run ended before it promoted anything.
        """
        ti, run_id = context["ti"], context["run_id"]
        if ti.xcom_pull(task_ids="promote", key=XCOM_KEY) is not None:
            return
        planned = ti.xcom_pull(task_ids="plan", key=XCOM_KEY)
        if planned is not None:
            result = StepResult.model_validate(planned)
            if Plan.model_validate(result.data["plan"]).action == "nothing":
                raise AirflowSkipException(result.summary)
            if context["params"]["plan_only"]:
                raise AirflowSkipException("plan_only was set for this run")
        states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[run_id]).get(run_id, {})
        failed = [task for task, state in states.items() if state == FAILED and task != ti.task_id]
        why = f"{', '.join(sorted(failed))} failed" if failed else "the run was ended before it finished"
        raise refused(context, f"released: no release of {self.name} was promoted: {why}.")
