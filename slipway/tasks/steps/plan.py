"""plan: resolve the spec to commits and digests, refuse what cannot work, and say what has to be made and why."""

import logging
from collections.abc import Callable
from functools import partial

from slipway.tasks.adapters.load.load_prompts import requests_of_lines
from slipway.tasks.adapters.progress import size
from slipway.tasks.adapters.store.heads import Heads
from slipway.tasks.adapters.store.release_documents import ReleaseDocuments
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.forecast import Preview
from slipway.tasks.contracts.fit.resolution import resolve as place
from slipway.tasks.contracts.fit.site_objects import SITE_CONFIG_MAP
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.plan import Plan, PlanRequest
from slipway.tasks.contracts.stored.release import Release, UnchangedRun
from slipway.tasks.engines.checkpoint.calibration_texts import texts_for
from slipway.tasks.engines.preflight.lora_base import architecture_of
from slipway.tasks.planning.adding import changes, resolve_adapters
from slipway.tasks.planning.checking import check
from slipway.tasks.planning.keying import KEY_DIGITS, key, with_stored
from slipway.tasks.planning.past import Past
from slipway.tasks.planning.previewing import preview
from slipway.tasks.planning.resolving import Resolution, resolve
from slipway.tasks.rollout.act.served import Served

log = logging.getLogger(__name__)

REMOVAL_PATIENCE_S = 120.0  # retention deletes the documents of a release in seconds


def run(request: PlanRequest, workspace: Workspace) -> Outcome:
    """Plan the release and write its release.json, unless the same release is live already or only a plan is wanted.

    Raises:
        InputError: the model, a dataset or the access to them is missing, the site cannot run the release, or Airflow
            has another site file.
        UnavailableError: the Hub or the object store does not answer.
    """
    _check_site(request, workspace.site)
    served = Served.read(request.release_spec, workspace.documents)
    uri_of = partial(_release_uri, spec=request.release_spec, channel=served.channel, documents=workspace.documents)
    settle = _found if request.plan_only else partial(_recorded, uri_of=uri_of)
    planned = _planned(request, workspace, served, settle=settle)
    for line in _log_lines(planned.plan):
        log.info(line)
    if planned.interruption:
        log.warning(planned.interruption.words)
    return Outcome(_summary(planned.plan, planned.unapplied), _data(planned, uri_of(planned.plan)))


def look(request: PlanRequest, workspace: Workspace) -> Preview:
    """Plan the release without writing anything: neither a plan nor a dataset, and no artifact is marked as used.

    Raises:
        InputError, UnavailableError: as of `run`.
    """
    return _planned(request, workspace, Served.read(request.release_spec, workspace.documents), settle=_found)


def _check_site(request: PlanRequest, site: Site) -> None:
    """Airflow picks the images of pods from its own site file, so keys are right only if plan has the same file."""
    if request.site not in {None, site.digest}:
        raise InputError(
            "Airflow and the pods of steps have different site files",
            found=f"{request.site} in Airflow",
            expected=f"{site.digest}, as in ConfigMap {site.kubernetes.pipeline_namespace}/{SITE_CONFIG_MAP}",
            remedy="Give both the same file (docs/cluster-setup.md, step 3), restart Airflow, and release again.",
        )


def _planned(
    request: PlanRequest, workspace: Workspace, served: Served, settle: Callable[[Plan, ReleaseSpec, Workspace], Plan]
) -> Preview:
    """Resolve the release, check it, key its stages, and preview what it will take.

    `settle` gives the plan with what is stored, once its stages have keys.
    """
    spec = request.release_spec
    resolution = resolve(place(spec, workspace.site), workspace.hub)
    findings = check(resolution, served)
    keyed = key(request, resolution, findings, served, workspace.templates)
    adapters = _adapters(keyed, resolution, served, workspace)
    plan = settle(keyed, spec, workspace)
    seen = preview(plan, resolution.release, served, Past(workspace.documents, workspace.artifacts))
    return seen.model_copy(update={"adapters": adapters})


def _adapters(plan: Plan, resolution: Resolution, served: Served, workspace: Workspace) -> tuple[str, ...]:
    """What the spec's adapters would change at the release, once it is live; or why it could not take them.

    They are no part of the release, and no reason to refuse it.
    """
    spec = resolution.spec
    if not spec.engine.room_rank:
        return ()
    planned = Release(id=plan.release_id, spec=spec, plan=plan, created_at=workspace.clock.now())
    base = served.live if served.live and served.live_id == plan.release_id else planned
    try:
        added = resolve_adapters(spec, base, workspace.hub, architecture_of(resolution.documents))
    except InputError as error:
        return (f"! {error}",)
    document = workspace.documents.adapters(spec.name, base.id)
    return changes(document, tuple(each.entry for each in added))


def _found(plan: Plan, spec: ReleaseSpec, workspace: Workspace) -> Plan:
    """The plan with what is stored; nothing is written."""
    del spec
    return with_stored(plan, workspace.artifacts.find, workspace.is_servable)


def _recorded(plan: Plan, spec: ReleaseSpec, workspace: Workspace, *, uri_of: Callable[[Plan], str]) -> Plan:
    """The plan with what is stored, after what it decided has been written."""
    if plan.action == "nothing":
        return _unchanged(plan, spec, workspace)
    return _released(plan, spec, workspace, uri_of(plan))


def _released(plan: Plan, spec: ReleaseSpec, workspace: Workspace, uri: str) -> Plan:
    """Write the release and the datasets that it needs; the plan with what is stored, which is marked as used."""
    for dataset in plan.datasets.files:
        workspace.datasets.keep(dataset, workspace.hub.read_dataset)
    texts_for(spec, plan.datasets, workspace.datasets.read)  # what quantize would refuse after the download
    if (prompts := spec.gate.benchmark.prompts) and plan.datasets.load_prompts:
        lines = workspace.datasets.read(plan.datasets.load_prompts)
        requests_of_lines(prompts, lines, spec.gate.benchmark.max_tokens)  # what benchmark would refuse
    release = Release(id=plan.release_id, spec=spec, plan=plan, created_at=workspace.clock.now())
    _write(release, uri, workspace)  # before any artifact is relied on, so that retention keeps them
    plan = with_stored(plan, workspace.artifacts.use, workspace.is_servable)
    _write(release.model_copy(update={"plan": plan}), uri, workspace)
    return plan


def _unchanged(plan: Plan, spec: ReleaseSpec, workspace: Workspace) -> Plan:
    """Record that the live release is what was requested; the plan with what is stored."""
    plan = _found(plan, spec, workspace)
    checked = UnchangedRun(release_id=plan.release_id, at=workspace.clock.now(), run=plan.run, schedule=spec.schedule)
    workspace.store.put_bytes(workspace.layout.checked(spec.name), canonical_json(checked.model_dump(mode="json")))
    return plan


def _release_uri(plan: Plan, spec: ReleaseSpec, channel: Channel, documents: ReleaseDocuments) -> str:
    """The address at which the run's other steps read the release.

    A previous release keeps the document that it was promoted with until this run is promoted: a way back uses it. With
    the same spec that document gets this run's plan, so that the warm pods, which have its address, stay.
    """
    layout, entry = documents.layout, channel.entry(plan.release_id)
    if entry is None:
        return layout.release(plan.name, plan.release_id)
    promoted = layout.release(plan.name, plan.release_id, entry.release_uri)
    if plan.action == "nothing" or _has_spec(spec, entry.release_uri, documents):
        return promoted
    first, second = layout.releases_again(plan.name, plan.release_id, plan.run)
    return second if first == promoted else first


def _has_spec(spec: ReleaseSpec, uri: str, documents: ReleaseDocuments) -> bool:
    """Whether a stored release has this spec, apart from what is no part of it; False where it cannot be read."""
    try:
        stored = documents.release(uri).spec
    except InputError:
        return False
    source = stored.source.model_copy(update={"revision": spec.source.revision})
    return stored.model_copy(update={"source": source, "adapters": spec.adapters}) == spec


def _write(release: Release, uri: str, workspace: Workspace) -> None:
    """Write the release's document, and the head that retention looks at where that is another one."""
    data = canonical_json(release.model_dump(mode="json"))
    head = workspace.layout.release(release.spec.name, release.id)
    if uri != head:
        workspace.store.put_bytes(uri, data)
        data = _readable(head, workspace) or data
    Heads(workspace.store, workspace.clock).replace(head, data, patience_s=REMOVAL_PATIENCE_S)


def _readable(uri: str, workspace: Workspace) -> bytes | None:
    """A release's document as it is stored; None where it is lost."""
    try:
        workspace.documents.release(uri)
        return workspace.store.read_bytes(uri)
    except InputError:
        return None


def _log_lines(plan: Plan) -> list[str]:
    """The plan as shown in the log, with a line per stage."""
    source = plan.source
    commit, amount = source.commit[:KEY_DIGITS], f"{len(source.files)} files, {size(source.size_bytes)}"
    lines = [f"{source.name} is commit {commit}: {amount}; live is {plan.live or 'nothing'}"]
    for name, adapter in plan.adapters.items():
        commit, amount = adapter.commit[:KEY_DIGITS], size(adapter.size_bytes)
        lines.append(f"  adapter {name}: {adapter.repo}@{adapter.revision} is commit {commit}: {amount}")
    if draft := plan.draft:
        commit, amount = draft.commit[:KEY_DIGITS], size(draft.size_bytes)
        lines.append(f"  draft model: {draft.name} is commit {commit}: {amount}")
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
        "adapters": list(preview.adapters),
        "stages": {
            stage: {"key": planned.key, "stored": planned.stored, "changed": list(planned.changed)}
            for stage, planned in plan.stages.items()
        },
    }
