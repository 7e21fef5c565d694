"""plan: resolve the spec to commits and digests, refuse what cannot work, and say what has to be made and why."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.tasks.adapters.load.load_prompts import requests_of_lines
from slipway.tasks.adapters.past_releases import past_releases, repository_of, stored_files
from slipway.tasks.adapters.past_times import past_gate, past_times
from slipway.tasks.adapters.progress import size
from slipway.tasks.adapters.store.heads import Heads
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.base import canonical_json, read_contract_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.forecast import (
    FAILED_STATES,
    PastTimes,
    Preview,
    differences,
    forecast,
    interruption,
    needed_requests,
)
from slipway.tasks.contracts.fit.resolution import ResolvedRelease, resolve
from slipway.tasks.contracts.fit.step_needs import step_shape
from slipway.tasks.contracts.site.site import quantity
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import STAGES, Manifest, Stage
from slipway.tasks.contracts.stored.bytes_to_move import bytes_to_move
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.plan import (
    Datasets,
    Estimate,
    Fields,
    Plan,
    PlanRequest,
    Source,
    StagePlan,
    Tools,
    explain,
    release_id,
    stage_fields,
    stage_keys,
)
from slipway.tasks.contracts.stored.release import Release, UnchangedRun
from slipway.tasks.engines.checkpoint.calibration_texts import texts_for
from slipway.tasks.engines.preflight import chat
from slipway.tasks.engines.preflight import harness as harness_tasks
from slipway.tasks.engines.preflight.hub_metadata import Documents
from slipway.tasks.engines.preflight.sources import (
    by_index,
    documents_of,
    draft_documents,
    draft_of,
    files_of_release,
    lora_documents,
    loras_of,
)
from slipway.tasks.engines.protocol import EnginePlanner
from slipway.tasks.engines.registry import planner_for
from slipway.tasks.rollout.act import server_target
from slipway.tasks.serving.rendered.front_routes import limits_of
from slipway.tasks.serving.rendered.repository import template_files

if TYPE_CHECKING:
    from slipway.tasks.contracts.step_names import Step

log = logging.getLogger(__name__)

GIB = 2**30
KEY_DIGITS = 12
REMOVAL_PATIENCE_S = 120.0  # retention deletes the documents of a release in seconds


@dataclass(frozen=True)
class Live:
    """The live release, and its release.json where that can still be read."""

    release_id: str
    release: Release | None


@dataclass(frozen=True)
class Resolution:
    """What a request means at the site and at the Hub."""

    release: ResolvedRelease
    engine: EnginePlanner
    source: Source
    adapters: dict[str, Source]
    draft: Source | None
    documents: Documents


@dataclass(frozen=True)
class Findings:
    """What the checks of a resolution computed, where none of them refused it."""

    estimate: Estimate
    warnings: tuple[str, ...]
    tools: Tools
    datasets: Datasets


def run(request: PlanRequest, workspace: Workspace) -> Outcome:
    """Plan the release and write its release.json, unless the same release is live already.

    Raises:
        InputError: the model, a dataset or the access to them is missing, or the site cannot run the release.
        UnavailableError: the Hub or the object store does not answer.
    """
    resolution, channel, live, plan = _planned(request, workspace)
    uri = workspace.layout.release(plan.name, plan.release_id)
    if plan.action == "release":
        plan = _released(plan, resolution.release.spec, uri, workspace)
    else:
        plan = _unchanged(plan, resolution.release.spec, workspace)
    preview = _preview(plan, resolution.release, live, channel, workspace)
    for line in _log_lines(plan):
        log.info(line)
    if preview.interruption:
        log.warning(preview.interruption.words)
    return Outcome(_summary(plan, preview.unapplied), _data(preview, uri))


def look(request: PlanRequest, workspace: Workspace) -> Preview:
    """Plan the release without writing anything: neither a plan nor a dataset, and no artifact is marked as used.

    Raises:
        InputError, UnavailableError: as of `run`.
    """
    resolution, channel, live, plan = _planned(request, workspace)
    plan = _with_stored(plan, workspace.artifacts.find, workspace)
    return _preview(plan, resolution.release, live, channel, workspace)


def _planned(request: PlanRequest, workspace: Workspace) -> tuple[Resolution, Channel | None, Live | None, Plan]:
    """The plan, before it is known what is stored, with what it was made of."""
    spec = _spec_of(request)
    channel = _channel(spec.name, workspace)
    live = _live(channel, workspace)
    resolution = _resolved(spec, workspace)
    findings = _checked(resolution, workspace)
    return resolution, channel, live, _keyed(request, resolution, findings, live, workspace)


def _released(plan: Plan, spec: ReleaseSpec, uri: str, workspace: Workspace) -> Plan:
    """Write the release and the datasets that it needs; the plan with what is stored, which is marked as used."""
    for dataset in plan.datasets.files:
        workspace.store_dataset(dataset)
    texts_for(spec, plan.datasets, workspace.read_dataset)  # what quantize would refuse after the download
    if (prompts := spec.gate.benchmark.prompts) and plan.datasets.load_prompts:
        lines = workspace.read_dataset(plan.datasets.load_prompts)
        requests_of_lines(prompts, lines, spec.gate.benchmark.max_tokens)  # what benchmark would refuse
    release = Release(id=plan.release_id, spec=spec, plan=plan, created_at=workspace.clock.now())
    _write(release, uri, workspace)  # before any artifact is relied on, so that retention keeps them
    plan = _with_stored(plan, workspace.artifacts.use, workspace)
    _write(release.model_copy(update={"plan": plan}), uri, workspace)
    return plan


def _unchanged(plan: Plan, spec: ReleaseSpec, workspace: Workspace) -> Plan:
    """Record that the live release is what was requested; the plan with what is stored."""
    plan = _with_stored(plan, workspace.artifacts.find, workspace)
    checked = UnchangedRun(release_id=plan.release_id, at=workspace.clock.now(), run=plan.run, schedule=spec.schedule)
    workspace.store.put_bytes(workspace.layout.checked(spec.name), canonical_json(checked.model_dump(mode="json")))
    return plan


def _preview(
    plan: Plan, resolved: ResolvedRelease, live: Live | None, channel: Channel | None, workspace: Workspace
) -> Preview:
    spec, before = resolved.spec, live.release if live else None
    if plan.action == "nothing":
        return Preview(plan=plan, forecast=None, unapplied=_unapplied(spec, before.spec) if before else ())
    releases = past_releases(channel, workspace)
    past = _past(plan, spec, releases, channel, workspace)
    repository = repository_of(plan, spec, releases, workspace)
    moved = bytes_to_move(plan, stored_files(plan, releases, workspace), repository)
    needed = needed_requests(spec.gate, measured) if before and (measured := past_gate(before, workspace)) else ()
    expected = forecast(resolved, plan, past, moved=moved, live=before.spec if before else None)
    lost = interruption(spec, before, expected) if before else None
    return Preview(plan=plan, forecast=expected, transfer=moved, needed=needed, interruption=lost)


def _past(
    plan: Plan, spec: ReleaseSpec, releases: Sequence[Release], channel: Channel | None, workspace: Workspace
) -> PastTimes | None:
    """Times of the release that is most like the plan's, of those that left any; the live one first among equals."""
    differs = {release.id: differences(spec, plan, release) for release in releases}
    states = {release.id: channel.state_of(release.id) if channel else None for release in releases}
    alike = sorted(releases, key=lambda each: len(differs[each.id]) + (states[each.id] in FAILED_STATES))
    times = (past_times(release, workspace) for release in alike)
    past = next((each for each in times if each.seconds), None)
    if past is None:
        return None
    return replace(past, state=states[past.release_id], differs=differs[past.release_id])


def _write(release: Release, uri: str, workspace: Workspace) -> None:
    data = canonical_json(release.model_dump(mode="json"))
    Heads(workspace.store, workspace.clock).replace(uri, data, patience_s=REMOVAL_PATIENCE_S)


def _with_stored(plan: Plan, find: Callable[[Stage, str], Manifest | None], workspace: Workspace) -> Plan:
    """The plan with the stages whose artifacts exist marked as stored; what pods would not start is published again."""

    def stored(stage: Stage, key: str) -> bool:
        manifest = find(stage, key)
        return manifest is not None and (stage != "publish" or workspace.is_servable(plan.release_id, manifest))

    stages = {
        stage: planned.model_copy(update={"stored": True, "changed": planned.changed if plan.live else ()})
        if stored(stage, planned.key)
        else planned
        for stage, planned in plan.stages.items()
    }
    return plan.model_copy(update={"stages": stages})


def _resolved(spec: ReleaseSpec, workspace: Workspace) -> Resolution:
    resolved = resolve(spec, workspace.site)
    engine = planner_for(spec.engine.kind)
    hub = workspace.hub
    source = files_of_release(hub.resolve(spec.source.repo, spec.source.revision))
    adapters, draft = loras_of(spec, hub), draft_of(spec, hub)
    documents = documents_of(source, spec.engine.traits.reads_at_plan, hub)
    source = by_index(source, documents)
    documents |= lora_documents(adapters, hub) | draft_documents(draft, hub)
    return Resolution(resolved, engine, source, adapters, draft, documents)


def _checked(resolution: Resolution, workspace: Workspace) -> Findings:
    """Refuse what cannot work, before any pod starts."""
    resolved, engine, source = resolution.release, resolution.engine, resolution.source
    spec, documents = resolved.spec, resolution.documents
    engine.check(resolved, source, documents)
    chat.check_rendering(spec, documents)
    of_engine = engine.warnings(resolved, source, documents)
    warnings = (*of_engine, *chat.warnings(spec, documents), *server_target.warnings(spec))
    for warning in warnings:
        log.warning(warning)
    others = [*resolution.adapters.values(), *([resolution.draft] if resolution.draft else [])]
    estimate = _with_others(engine.estimate(spec, source), others)
    _check_fit(resolved, estimate)
    tools = _tools(resolved, engine, workspace)
    server_target.check(spec, workspace)
    return Findings(estimate, warnings, tools, _pinned(spec, workspace))


def _keyed(
    request: PlanRequest, resolution: Resolution, findings: Findings, live: Live | None, workspace: Workspace
) -> Plan:
    """The plan with the keys of its stages."""
    spec, source, adapters, draft = resolution.release.spec, resolution.source, resolution.adapters, resolution.draft
    salt = request.run if request.force else None
    fields = stage_fields(spec, source, findings.datasets, findings.tools, adapters=adapters, draft=draft, salt=salt)
    stages = _stages(fields, live)
    identity = release_id(spec.name, stages["publish"].key)
    is_live = live is not None and live.release_id == identity
    if is_live:
        _check_published(identity, stages["publish"].key, workspace)
    return Plan(
        release_id=identity,
        name=spec.name,
        run=request.run,
        action="nothing" if is_live else "release",
        source=source,
        adapters=adapters,
        draft=draft,
        datasets=findings.datasets,
        stages=stages,
        live=live.release_id if live else None,
        estimate=findings.estimate,
        warnings=findings.warnings,
        forced=request.force,
        thinks=chat.thinks(resolution.documents),
        rollout=spec.rollout.words,
    )


def _check_published(live: str, key: str, workspace: Workspace) -> None:
    """Refuse to plan nothing while the live release's published artifact is missing.

    A run does not publish it again by itself: that would sign files that may have changed since the gate measured them.
    """
    if workspace.artifacts.find("publish", key) is None:
        raise InputError(
            f"{live} is live, but its artifact publish {key[:KEY_DIGITS]} does not exist, so no new pod can start",
            remedy="Publish it again (docs/runbook.md), or roll back.",
        )


def _spec_of(request: PlanRequest) -> ReleaseSpec:
    if request.revision is None:
        return request.spec
    source = request.spec.source.model_copy(update={"revision": request.revision})
    return request.spec.model_copy(update={"source": source})


def _with_others(estimate: Estimate, others: Sequence[Source]) -> Estimate:
    """Add adapters and a draft model, which are on disk as downloaded and once more as passed on."""
    size_bytes = sum(other.size_bytes for other in others)
    return estimate.model_copy(
        update={
            "download_bytes": estimate.download_bytes + size_bytes,
            "scratch_bytes": estimate.scratch_bytes + 2 * size_bytes,
        }
    )


def _check_fit(resolved: ResolvedRelease, estimate: Estimate) -> None:
    """Refuse what would run out of disk or memory after hours of work."""
    spec, site = resolved.spec, resolved.site
    needs: tuple[tuple[Step, str, int], ...] = (
        ("quantize", "scratch", estimate.scratch_bytes),
        ("quantize", "memory", estimate.memory_bytes),
    )
    for step, resource, needed_bytes in needs:
        given, field = getattr(resolved.step(step).shape, resource), f"shapes.{step_shape(step, spec)}.{resource}"
        if needed_bytes > quantity(given):
            raise InputError(
                f"{step} of {spec.source.repo} needs about {needed_bytes / GIB:.2f} GiB of {resource}",
                found=f"{given} in {field} of site {site.name}",
                remedy=f"Raise {field} in the site file.",
            )
    limits_of([spec], int(quantity(resolved.serving.shape.memory)))


def _pinned(spec: ReleaseSpec, workspace: Workspace) -> Datasets:
    quality, calibration, prompts = spec.gate.quality, spec.quantization.calibration, spec.gate.benchmark.prompts
    uris = {
        "calibration": calibration.dataset if calibration else None,
        "quality": quality.dataset if quality else None,
        "perplexity": quality.perplexity if quality else None,
        "load_prompts": prompts.dataset if prompts else None,
    }
    harness = spec.gate.harness
    questions = {task.task: task.questions for task in harness.tasks if task.questions} if harness else {}
    commits = harness_tasks.datasets_of(harness) if harness else {}
    return Datasets(
        **{name: workspace.hub.pin_dataset(uri) for name, uri in uris.items() if uri},
        harness_questions={name: workspace.hub.pin_dataset(uri) for name, uri in questions.items()},
        harness_commits={name: workspace.hub.commit_of_dataset(repo) for name, repo in commits.items()},
    )


def _tools(resolved: ResolvedRelease, engine: EnginePlanner, workspace: Workspace) -> Tools:
    templates = _digests(workspace.templates / resolved.spec.engine.kind)
    return Tools(producers=engine.producers(resolved), templates=templates)


def _digests(folder: Path) -> dict[str, str]:
    files = template_files(folder)
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _channel(name: str, workspace: Workspace) -> Channel | None:
    uri = workspace.layout.channel(name)
    stored = workspace.store.read_with_etag(uri)
    return read_contract_json(Channel, stored[0], uri) if stored else None


def _live(channel: Channel | None, workspace: Workspace) -> Live | None:
    if channel is None or channel.live is None:
        return None
    entry = channel.live
    try:
        document = workspace.store.read_bytes(entry.release_uri)
        return Live(entry.release_id, read_contract_json(Release, document, entry.release_uri))
    except InputError as error:  # only the reasons are lost: a release must stay possible
        log.warning("the live release cannot be compared with: %s", error)
        return Live(entry.release_id, None)


def _stages(fields: dict[Stage, Fields], live: Live | None) -> dict[Stage, StagePlan]:
    """The stages with their keys and reasons; which are stored is looked up later."""
    before = {stage: was.fields for stage, was in live.release.plan.stages.items()} if live and live.release else None
    reasons, keys = explain(fields, before), stage_keys(fields)
    if live and before is None:
        reasons = dict.fromkeys(STAGES, (f"the plan of {live.release_id}, which is live, cannot be read",))
    return {
        stage: StagePlan(
            key=keys[stage],
            stored=False,
            fields=fields[stage],
            changed=reasons[stage],
        )
        for stage in STAGES
    }


def _unapplied(spec: ReleaseSpec, live: ReleaseSpec) -> tuple[str, ...]:
    """Sections that differ from the live release's although its artifacts are the same."""
    return tuple(name for name in ("serving", "gate", "rollout") if getattr(spec, name) != getattr(live, name))


def _log_lines(plan: Plan) -> list[str]:
    """The plan as shown in the log, with a line per stage."""
    source = plan.source
    commit, amount = source.commit[:KEY_DIGITS], f"{len(source.files)} files, {size(source.size_bytes)}"
    lines = [f"{source.repo}@{source.revision} is commit {commit}: {amount}; live is {plan.live or 'nothing'}"]
    for name, adapter in plan.adapters.items():
        commit, amount = adapter.commit[:KEY_DIGITS], size(adapter.size_bytes)
        lines.append(f"  adapter {name}: {adapter.repo}@{adapter.revision} is commit {commit}: {amount}")
    if draft := plan.draft:
        commit, amount = draft.commit[:KEY_DIGITS], size(draft.size_bytes)
        lines.append(f"  draft model: {draft.repo}@{draft.revision} is commit {commit}: {amount}")
    for stage, planned in plan.stages.items():
        sign, state = ("=", "stored") if planned.stored else ("+", "to be made")
        why = f": {'; '.join(planned.changed)}" if planned.changed and not planned.stored else ""
        lines.append(f"  {sign} {stage:<8} {planned.key[:KEY_DIGITS]}  {state}{why}")
    return lines


def _summary(plan: Plan, unapplied: tuple[str, ...]) -> str:
    if plan.action == "nothing":
        later = f"; changes of {', '.join(unapplied)} apply with the next release, or with --force" if unapplied else ""
        return f"nothing to do: {plan.release_id} is live and matches the request{later}"
    missing = plan.missing
    stored = len(plan.stages) - len(missing)
    made = f"{', '.join(missing)} to be made, {stored} of {len(plan.stages)} stored" if missing else "all stored"
    return f"{plan.release_id}: {made}"


def _data(preview: Preview, release_uri: str) -> dict[str, object]:
    plan = preview.plan
    return {
        "plan": plan.model_dump(mode="json"),
        "release": release_uri,
        "release_id": plan.release_id,
        "action": plan.action,
        "commit": plan.source.commit,
        "live": plan.live,
        "estimate": plan.estimate.model_dump(mode="json"),
        "forecast": preview.forecast.model_dump(mode="json") if preview.forecast else None,
        "transfer": preview.transfer.model_dump(mode="json") if preview.transfer else None,
        "interruption": preview.interruption.model_dump(mode="json") if preview.interruption else None,
        "needed": [each.model_dump(mode="json") for each in preview.needed],
        "unapplied": list(preview.unapplied),
        "stages": {
            stage: {"key": planned.key, "stored": planned.stored, "changed": list(planned.changed)}
            for stage, planned in plan.stages.items()
        },
    }
