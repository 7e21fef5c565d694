"""The DAG of a release: plan, build, publish, roll out, measure, judge, promote or roll back."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import yaml
from airflow.sdk import DAG, Param, TriggerRule, chain
from airflow.sdk.definitions.param import ParamsDict

from slipway.airflow.approval import Approval
from slipway.airflow.assets import live_model, trigger
from slipway.airflow.doc_text import code, fenced
from slipway.airflow.notify.callbacks import tells, warn_of_problems
from slipway.airflow.released import Released
from slipway.airflow.step_operator import StepOperator
from slipway.tasks.contracts.fit.step_kinds import steps_of
from slipway.tasks.contracts.redaction import bounded
from slipway.tasks.contracts.spec.fleet import SpecFile
from slipway.tasks.contracts.spec.spec import ReleaseSpec

if TYPE_CHECKING:
    from slipway.tasks.contracts.step_names import Step

FIELDS = ReleaseSpec.model_json_schema()["$defs"]
Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's, ten times as fast
DOC_CHARS = 16_000  # prompts may be long, and Airflow stores the text with every version of the DAG
DEFAULTS = {
    # a run that is nearly done holds GPUs for its candidate: under load it ends before others begin (docs/scale.md)
    "weight_rule": "upstream",
    "retries": 2,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
}
DOC = """Releases **{spec.name}**: `{spec.source.model}`{revision}, quantized to
`{spec.quantization.format}`, served by `{spec.engine.kind}`.

`plan` computes a key for each stage. A stage whose artifact is stored succeeds without a pod; when the requested
release is live already, every step is skipped. The gate compares the candidate with the live release. If the gate
refuses it, a person rejects it or any step after `roll-out` fails, the candidate is rolled back and the run fails. A
run that is marked as failed rolls back as well.

{text}
"""


def params(spec: ReleaseSpec) -> dict[str, Param]:
    """What a person or CI may set for a run. The limits are those of the spec's JSON Schema.

    Whoever may trigger a run may ask for an approval that the spec does not want, but not go without one that it wants.
    """
    revision = FIELDS["Source"]["properties"]["revision"]
    approval = FIELDS["Rollout"]["properties"]["approval"]
    return {
        "revision": Param(**revision | {"default": spec.source.revision}),
        "plan_only": Param(
            False, type="boolean", title="Plan only", description="show what would be done without doing it"
        ),
        "force": Param(
            False, type="boolean", title="Force", description="make every artifact again, even if it is stored"
        ),
        "approval": Param(
            **approval
            | {
                "default": spec.rollout.approval,
                "enum": ["human"] if spec.rollout.approval == "human" else approval["enum"],
                "description": "who approves a candidate that passed its gate",
            }
        ),
    }


def release_dag(spec: ReleaseSpec, file: SpecFile) -> DAG:
    """Build the DAG of one of the models of a spec's file. Whoever starts a fleet starts its members as well."""
    warn_of_problems(spec)
    document = spec.model_dump(mode="json", exclude_unset=True)
    text = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    at_revision = f" at {code(spec.source.revision)}" if spec.source.repo else ""
    with DAG(
        dag_id=f"release__{spec.name}",
        description=f"{spec.source.model} → {spec.quantization.format} → {spec.engine.kind}",
        schedule=None if file.is_fleet else trigger(spec.schedule),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False if file.is_fleet else None,
        tags={"slipway", spec.engine.kind, spec.quantization.format, spec.engine.gpu or "cpu"},
        default_args=DEFAULTS,
        doc_md=DOC.format(spec=spec, revision=at_revision, text=fenced(bounded(text, DOC_CHARS), "yaml")),
        auto_register=False,
    ) as dag:
        rules: dict[Step, TriggerRule] = {
            # approval may be skipped, and a run with nothing to release skips both gate and approval
            "promote": TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        }
        steps: dict[Step, Any] = {
            step: StepOperator(
                task_id=step,
                step=step,
                spec=spec,
                trigger_rule=rules.get(step, TriggerRule.ALL_SUCCESS),
                outlets=[live_model(spec.name)] if step == "promote" else [],
            )
            for step in steps_of(spec)
        }
        rollout = spec.rollout
        warm = rollout.surge == "full"
        asks = tells("waiting-for-approval", spec)
        approval = Approval(task_id="approval", name=spec.name, keep=rollout.keep, warm=warm, notifiers=asks)
        *forward, promote, roll_back = steps.values()
        chain(*forward, [approval, promote])
        chain(approval, promote)
        candidate_steps = forward[forward.index(steps["roll-out"]) :]
        # teardown tasks, because Airflow runs no others after a person marks a run as failed
        chain([*candidate_steps, approval, promote], roll_back.as_teardown())
        released = Released(
            task_id="released",
            name=spec.name,
            on_success_callback=tells("promoted", spec),
            on_failure_callback=tells("refused", spec),
        ).as_teardown(on_failure_fail_dagrun=True)
        chain([promote, roll_back], released)
    # after its tasks, each of which would otherwise copy them; a run merges them in anyway
    dag.params = ParamsDict(params(spec))
    return dag
