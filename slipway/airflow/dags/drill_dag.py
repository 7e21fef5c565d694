"""The DAG that tries out the way back to the previous release, for a spec with `rollout.drill`.

In one step, `drill`, the traffic goes to the previous release and back to the live one while requests are sent. A
request that fails makes the run fail. docs/day-two.md says what a drill reports and what to do about a red one.
"""

from datetime import timedelta

from airflow.sdk import DAG

from slipway.airflow.notify.callbacks import tells
from slipway.airflow.step_operator import StepOperator
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.lease import DRILLS


def drill_dag(spec: ReleaseSpec) -> DAG | None:
    """Build the DAG of one model; None where its spec wants no drill."""
    drill = spec.rollout.drill
    if drill is None:
        return None
    with DAG(
        dag_id=f"{DRILLS}{spec.name}",
        description=f"roll {spec.name} back and promote it again, under load",
        schedule=drill.schedule,
        catchup=False,
        max_active_runs=1,
        tags={"slipway", "drill"},
        doc_md=f"Sends the traffic of **{spec.name}** to its previous release and back to the live one, while requests "
        "are sent, and reports how many failed and how long each change took. Nothing is released.",
        auto_register=False,
    ) as dag:
        # after its pod was lost the second attempt puts the live release back, so it comes soon
        StepOperator(
            task_id="drill",
            step="drill",
            spec=spec,
            retries=1,
            retry_delay=timedelta(seconds=10),
            on_failure_callback=tells("drill-failed", spec),
        )
    return dag
