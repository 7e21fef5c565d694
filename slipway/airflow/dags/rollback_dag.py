"""The DAG that puts the previous release of a model back, in one step, `revert`.

With `to: live` it deploys again what the channel names as live, as after the loss of a cluster.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from slipway.airflow.assets import live_model
from slipway.airflow.notify.callbacks import tells
from slipway.airflow.step_operator import StepOperator
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.release import RevertRequest

AHEAD_OF_RELEASES = 1000
"""A priority above that of every task of a release: a rollback does not wait for a free slot behind releases."""
FIELDS = RevertRequest.model_json_schema()["properties"]


def rollback_dag(spec: ReleaseSpec) -> DAG:
    """Build the DAG of one model."""
    with DAG(
        dag_id=f"rollback__{spec.name}",
        description=f"put the previous release of {spec.name} back",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        params={"reason": Param(**FIELDS["reason"]), "to": Param(**FIELDS["to"])},
        tags={"slipway", "rollback"},
        doc_md=f"Sends all traffic of **{spec.name}** to its previous release and records the reason in its channel.",
        auto_register=False,
    ) as dag:
        StepOperator(
            task_id="revert",
            step="revert",
            spec=spec,
            retries=2,
            retry_delay=timedelta(seconds=10),
            priority_weight=AHEAD_OF_RELEASES,
            outlets=[live_model(spec.name)],
            on_success_callback=tells("rolled-back", spec),
        )
    return dag
