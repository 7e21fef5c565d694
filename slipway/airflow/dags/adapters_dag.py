"""The DAG that changes the LoRA adapters of a live model, for a spec with room for them (docs/lora.md).

`fetch-adapters` brings what the spec's `adapters` name from the Hub, checked. Where the site signs, `sign-adapters`
signs that. `load-adapters` gates them at one pod, has every pod load them, and lets clients name them. With `to:
previous` names mean again what they meant before.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import DAG, Param, chain

from slipway.airflow.site import current_site
from slipway.airflow.step_operator import StepOperator
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.adapters import AdaptersRequest
from slipway.tasks.contracts.stored.lease import ADAPTERS

if TYPE_CHECKING:
    from slipway.tasks.contracts.step_names import Step

FIELDS = AdaptersRequest.model_json_schema()["properties"]


def adapters_dag(spec: ReleaseSpec) -> DAG | None:
    """Build the DAG of one model; None where its server has no room for adapters."""
    if not spec.engine.room_rank:
        return None
    with DAG(
        dag_id=f"{ADAPTERS}{spec.name}",
        description=f"change the LoRA adapters of {spec.name} while it is live",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        params={"to": Param(**FIELDS["to"]), "reason": Param(**FIELDS["reason"])},
        tags={"slipway", "adapters"},
        doc_md=f"Has the live release of **{spec.name}** serve the adapters that its spec names. No pod is replaced.",
        auto_register=False,
    ) as dag:
        signs: tuple[Step, ...] = ("sign-adapters",) if current_site().signing else ()
        again = {"retries": 2, "retry_delay": timedelta(seconds=10)}
        steps: tuple[Step, ...] = ("fetch-adapters", *signs, "load-adapters")
        chain(*(StepOperator(task_id=step, step=step, spec=spec, **again) for step in steps))
    return dag
