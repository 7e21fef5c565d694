"""One Airflow DAG per release spec that puts the previous release of its model back: one step, `revert`."""

from airflow.sdk import DAG, Param

from plugins.slipway_airflow.site import specs_folder
from plugins.slipway_airflow.specs import read_specs
from plugins.slipway_airflow.step_operator import StepOperator
from tasks.contracts.release import RevertRequest
from tasks.contracts.spec import ReleaseSpec

REASON = RevertRequest.model_json_schema()["properties"]["reason"]


def rollback_dag(spec: ReleaseSpec) -> DAG:
    """The DAG of one model."""
    with DAG(
        dag_id=f"rollback__{spec.name}",
        description=f"put the previous release of {spec.name} back",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        params={"reason": Param(**REASON)},
        tags={"slipway", "rollback"},
        doc_md=f"Sends all traffic of **{spec.name}** to its previous release and notes why in its channel.",
    ) as dag:
        StepOperator(task_id="revert", step="revert", spec=spec, retries=1)
    return dag


for release_spec in read_specs(specs_folder()).good.values():
    globals()[f"rollback__{release_spec.name}"] = rollback_dag(release_spec)
