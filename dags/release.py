"""One Airflow DAG per release spec: plan, make, publish, roll out, measure, judge, promote or roll back.

The specs are the *.yaml files of the folder that SLIPWAY_SPECS names. A broken spec has no DAG here and stops no other
one: dags/broken_specs.py makes it an import error that names the file and what is wrong in it.
"""

from datetime import timedelta
from typing import Any

import yaml
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, TriggerRule, chain

from plugins.slipway_airflow.approval import Approval
from plugins.slipway_airflow.site import specs_folder
from plugins.slipway_airflow.specs import read_specs
from plugins.slipway_airflow.step_operator import StepOperator
from tasks.contracts.release import STEPS, Step
from tasks.contracts.spec import ReleaseSpec

FIELDS = ReleaseSpec.model_json_schema()["$defs"]
RETRIES = {
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
}
DOC = """Releases **{spec.name}**: `{spec.source.repo}` at `{spec.source.revision}`, quantized to
`{spec.quantization.format}`, served by `{spec.engine.kind}`.

`plan` computes a key per stage. A stage whose artifact is stored succeeds without a pod; when the live release is what
was asked for, every step is skipped. The gate judges the candidate beside the live release. A refusal, a rejection or
any failure after `roll-out` rolls back, and the run ends failed.

```yaml
{text}
```
"""


def params(spec: ReleaseSpec) -> dict[str, Param]:
    """What a person or CI may set per run. Limits are those of the spec's own JSON Schema."""
    revision = FIELDS["Source"]["properties"]["revision"]
    approval = FIELDS["Rollout"]["properties"]["approval"]
    return {
        "revision": Param(**revision | {"default": spec.source.revision}),
        "plan_only": Param(
            False, type="boolean", title="Plan only", description="say what would be done, do none of it"
        ),
        "force": Param(False, type="boolean", title="Force", description="make every artifact anew, stored or not"),
        "approval": Param(
            **approval | {"default": spec.rollout.approval, "description": "who lets a passed candidate go live"}
        ),
    }


def release_dag(spec: ReleaseSpec) -> DAG:
    """The DAG of one spec."""
    text = yaml.safe_dump(spec.model_dump(mode="json", exclude_unset=True), sort_keys=False, allow_unicode=True)
    with DAG(
        dag_id=f"release__{spec.name}",
        description=f"{spec.source.repo} → {spec.quantization.format} → {spec.engine.kind}",
        schedule=spec.schedule,
        catchup=False,
        max_active_runs=1,
        params=params(spec),
        tags={"slipway", spec.engine.kind, spec.quantization.format, spec.engine.gpu or "cpu"},
        default_args=RETRIES,
        doc_md=DOC.format(spec=spec, text=text),
    ) as dag:
        rules: dict[Step, TriggerRule] = {
            # approval may be skipped, and a run that has nothing to do skips gate and approval both
            "promote": TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            "roll-back": TriggerRule.ONE_FAILED,
        }
        steps: dict[Step, Any] = {
            step: StepOperator(
                task_id=step, step=step, spec=spec, trigger_rule=rules.get(step, TriggerRule.ALL_SUCCESS)
            )
            for step in STEPS
        }
        approval = Approval(task_id="approval", name=spec.name)
        # roll-back succeeds where the run has failed; this leaf, which nothing but promote reaches, decides the run
        released = EmptyOperator(task_id="released")

        *forward, promote, roll_back = (steps[step] for step in STEPS)
        chain(*forward, [approval, promote])
        chain(approval, promote, released)
        candidate_steps = forward[forward.index(steps["roll-out"]) :]
        chain([*candidate_steps, approval, promote], roll_back)
    return dag


for release_spec in read_specs(specs_folder()).good.values():
    globals()[f"release__{release_spec.name}"] = release_dag(release_spec)
