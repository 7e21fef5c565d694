"""The last task of a release, which decides whether the run succeeded."""

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import BaseOperator

from slipway.airflow.refusals import refused
from slipway.airflow.reported import reported
from slipway.tasks.contracts.stored.plan import Plan

if TYPE_CHECKING:
    from airflow.sdk import Context

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
        if reported(context, "promote"):
            return
        if planned := reported(context, "plan"):
            if Plan.model_validate(planned.data["plan"]).action == "nothing":
                raise AirflowSkipException(planned.summary)
            if context["params"]["plan_only"]:
                raise AirflowSkipException("plan_only was set for this run")
        states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[run_id]).get(run_id, {})
        failed = [task for task, state in states.items() if state == FAILED and task != ti.task_id]
        why = f"{', '.join(sorted(failed))} failed" if failed else "the run was ended before it finished"
        raise refused(context, f"released: no release of {self.name} was promoted: {why}.")
