"""One Airflow DAG for each release spec with `rollout.drill`: it tries out the way back to the previous release.

In one step, `drill`, the traffic goes to the previous release and back to the live one while requests are sent. A
request that fails makes the run fail. docs/day-two.md says what a drill reports and what to do about a red one.
"""

from datetime import timedelta

from airflow.sdk import DAG

from plugins.slipway_airflow.site import current_site, specs_folder, specs_slice
from plugins.slipway_airflow.specs import make_dags, name_in_task
from plugins.slipway_airflow.step_operator import StepOperator
from tasks.contracts.spec.spec import ReleaseSpec
from tasks.contracts.stored.lease import DRILLS


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
        StepOperator(task_id="drill", step="drill", spec=spec, retries=1, retry_delay=timedelta(seconds=10))
    return dag


current_site()
if __name__ != "dags.drill":  # see broken_specs.py
    # most specs have none, and are not parsed
    DAGS = make_dags(specs_folder(), drill_dag, only=name_in_task(DRILLS), part=specs_slice(), holding="drill")
    globals().update(DAGS.made)
