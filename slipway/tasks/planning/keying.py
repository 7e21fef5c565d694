"""The third move, key: the stages of a plan with their keys, and which of their artifacts are stored."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.artifact import STAGES, Manifest, Stage
from slipway.tasks.contracts.stored.plan import (
    Fields,
    Plan,
    PlanRequest,
    StagePlan,
    Tools,
    explain,
    release_id,
    stage_fields,
    stage_keys,
)
from slipway.tasks.planning.checking import Findings
from slipway.tasks.planning.resolving import Resolution
from slipway.tasks.rollout.act.served import Served
from slipway.tasks.serving.rendered.repository import template_files

KEY_DIGITS = 12


def key(request: PlanRequest, resolution: Resolution, findings: Findings, served: Served, templates: Path) -> Plan:
    """The plan, before it is known what is stored.

    Args:
        request: the run that asks, and whether every artifact is made again.
        resolution: what the run releases.
        findings: what the checks computed.
        served: the live release, which the reasons compare with.
        templates: templates of Triton repositories, by engine kind.
    """
    spec = resolution.spec
    tools = Tools(
        producers=resolution.engine.producers(resolution.release), templates=_digests(templates / spec.engine.kind)
    )
    fields = stage_fields(
        spec,
        resolution.source,
        resolution.datasets,
        tools,
        adapters=resolution.adapters,
        draft=resolution.draft,
        salt=request.run if request.force else None,
    )
    stages = _stages(fields, served)
    identity = release_id(spec.name, stages["publish"].key)
    return Plan(
        release_id=identity,
        name=spec.name,
        run=request.run,
        action="nothing" if served.live_id == identity else "release",
        source=resolution.source,
        adapters=resolution.adapters,
        draft=resolution.draft,
        datasets=resolution.datasets,
        stages=stages,
        live=served.live_id,
        estimate=findings.estimate,
        warnings=findings.warnings,
        forced=request.force,
        thinks=findings.thinks,
        rollout=spec.rollout.words,
        engine_kind=findings.engine_kind,
    )


def with_stored(
    plan: Plan, find: Callable[[Stage, str], Manifest | None], is_servable: Callable[[str, Manifest], bool]
) -> Plan:
    """The plan with the stages whose artifacts exist marked as stored; what pods would not start is published again.

    Args:
        plan: a plan as `key` makes it.
        find: the artifact of a stage and key; None where the store has none.
        is_servable: whether serving pods would start a release's published artifact.

    Raises:
        InputError: nothing is planned, because the release is live, and its published artifact is missing. A run does
            not publish it again by itself: that would sign files that may have changed since the gate measured them.
    """
    manifests = {stage: find(stage, planned.key) for stage, planned in plan.stages.items()}
    published = manifests["publish"]
    if plan.action == "nothing" and published is None:
        raise InputError(
            f"{plan.release_id} is live, but its artifact publish {plan.stages['publish'].key[:KEY_DIGITS]} does not "
            "exist, so no new pod can start",
            remedy="Publish it again (docs/runbook.md), or roll back.",
        )
    if published is not None and not is_servable(plan.release_id, published):
        manifests["publish"] = None
    stages = {
        stage: planned.model_copy(update={"stored": True, "changed": planned.changed if plan.live else ()})
        if manifests[stage]
        else planned
        for stage, planned in plan.stages.items()
    }
    return plan.model_copy(update={"stages": stages})


def _digests(folder: Path) -> dict[str, str]:
    files = template_files(folder)
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _stages(fields: dict[Stage, Fields], served: Served) -> dict[Stage, StagePlan]:
    """The stages with their keys and reasons; which are stored is looked up later."""
    live = served.live
    before = {stage: planned.fields for stage, planned in live.plan.stages.items()} if live else None
    reasons, keys = explain(fields, before), stage_keys(fields)
    if served.live_id and before is None:
        reasons = dict.fromkeys(STAGES, (f"the plan of {served.live_id}, which is live, cannot be read",))
    return {
        stage: StagePlan(key=keys[stage], stored=False, fields=fields[stage], changed=reasons[stage])
        for stage in STAGES
    }
