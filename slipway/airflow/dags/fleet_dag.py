"""The DAG of a fleet: it releases each member by a run of the member's own DAG, and waits for all of them.

The first member is released alone, because its run makes the stages that all members share; the others then find them
stored, and are released side by side, whatever became of the first.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, TriggerRule
from airflow.sdk.definitions.param import ParamsDict

from slipway.airflow.assets import trigger
from slipway.airflow.dags.left_behind import RELEASES
from slipway.airflow.dags.release_dag import params
from slipway.airflow.refusals import refused
from slipway.tasks.contracts.spec.fleet import FLEETS, SpecFile, member_run

if TYPE_CHECKING:
    from airflow.sdk import Context

POLL_S = 10
LONGEST_RUN = timedelta(days=7)
"""Limits the wait for a member's run that never ends, because its DAG is paused, it was deleted or nobody approves: the
fleet's next run begins only then. Airflow 3 does not count a deferred task's time, so the limit is the run's."""
DOC = """Releases the members of the fleet **{name}**, one after the first: {members}.

Each member is released by a run of its own DAG, with the parameters of the fleet's run, and is promoted or refused by
its own gate. The run fails if one of them fails, or after a week, when the members' runs go on. Clear a task here to
release its member again.
"""


def fleet_dag(fleet: SpecFile) -> DAG:
    """Build the DAG of one fleet; the id of each task is its member's name."""
    names = [model.name for model in fleet.models]
    with DAG(
        dag_id=f"{FLEETS}{fleet.name}",
        description=f"{fleet.models[0].source.model} → {', '.join(names)}",
        schedule=trigger(fleet.models[0].schedule),
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=LONGEST_RUN,
        tags={"slipway", "fleet"},
        doc_md=DOC.format(name=fleet.name, members=", ".join(f"`{RELEASES}{name}`" for name in names)),
        auto_register=False,
    ) as dag:
        first, *others = [_released(name) for name in names]
        for other in others:
            other.trigger_rule = TriggerRule.ALL_DONE
        # Airflow decides how a run ended by its last tasks, and the first member is none of them
        [first, *others] >> EmptyOperator(task_id="released")
        first >> others
    dag.params = ParamsDict(_params(fleet))
    return dag


def _params(fleet: SpecFile) -> dict[str, Any]:
    """Those of a member's run; `approval` only if one choice suits all members."""
    of_first = params(fleet.models[0])
    same = len({model.rollout.approval for model in fleet.models}) == 1
    return {name: value for name, value in of_first.items() if same or name != "approval"}


class ReleaseOfMember(TriggerDagRunOperator):
    """Starts a run of the member's DAG and waits for its end."""

    def execute(self, context: "Context") -> Any:
        """Do what the parent does, unless the DAG is paused.

        The parent's own check is of Airflow 3.2 and its newest providers, and earlier ones refuse the argument or fail.
        """
        get_dag = getattr(context["ti"], "get_dag", None)
        if get_dag is not None and get_dag(self.trigger_dag_id).is_paused:
            raise refused(context, f"{self.task_id}: DAG {self.trigger_dag_id} is paused, so its run would never start")
        return super().execute(context)


def _released(name: str) -> ReleaseOfMember:
    """The task that releases one member; it waits in the triggerer, so it takes no worker from the member's steps."""
    return ReleaseOfMember(
        task_id=name,
        trigger_dag_id=f"{RELEASES}{name}",
        trigger_run_id=member_run("{{ run_id }}"),
        conf="{{ (dag_run.conf or {}) | tojson }}",  # type: ignore[arg-type]  # the operator parses what a template gives
        logical_date=None,  # with a date, Airflow before 3.1.4 waits without end for a run that was cleared (#57756)
        wait_for_completion=True,
        deferrable=True,
        poke_interval=POLL_S,
        reset_dag_run=True,  # where a person clears the task
        retries=0,
    )
