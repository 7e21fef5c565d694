"""plan: resolve what was asked to commits and digests, refuse what cannot work, and say what has to be made and why."""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from tasks.adapters.progress import size
from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.artifact import STAGES, File, Stage
from tasks.contracts.base import canonical_json, read_contract, read_contract_json
from tasks.contracts.channel import Channel
from tasks.contracts.compatibility import MULTI_NODE_KINDS, needs_gpu
from tasks.contracts.errors import InputError
from tasks.contracts.plan import (
    Datasets,
    Estimate,
    Fields,
    HubFile,
    Plan,
    PlanRequest,
    Source,
    StagePlan,
    Tools,
    adapter_folder,
    explain,
    release_id,
    stage_fields,
    stage_keys,
)
from tasks.contracts.release import Release, Step
from tasks.contracts.site import Site, quantity
from tasks.contracts.spec import ReleaseSpec
from tasks.engines.announced import QUANTIZED_BY_MODELOPT, READ_AT_PLAN
from tasks.engines.checkpoint import COMPANIONS, INDEX
from tasks.engines.lora import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from tasks.engines.protocol import Engine
from tasks.engines.registry import engine_for
from tasks.engines.repository import template_files
from tasks.engines.texts import texts_for
from tasks.rollout import hosting

log = logging.getLogger(__name__)

SAFETENSORS = "*.safetensors"
NAMED_BY_TRANSFORMERS = "model*.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
GIB = 2**30
KEY_DIGITS = 12
ShapeName = Literal["transfer", "compute", "gpu"]


@dataclass(frozen=True)
class Live:
    """The live release, and what was planned of it where that can still be read."""

    release_id: str
    release: Release | None


def run(request: PlanRequest, workspace: Workspace) -> Outcome:
    """Plan the release and write its release.json, unless what was asked for is live already.

    Raises:
        InputError: the model, a dataset or the access to them is missing, or the site cannot do what is asked.
        UnavailableError: the Hub or the object store does not answer.
    """
    spec = _asked(request)
    live = _live(spec.name, workspace)
    plan = _planned(request, spec, live, workspace)
    uri = workspace.layout.release(spec.name, plan.release_id)
    if plan.action == "release":
        for dataset in (plan.datasets.calibration, plan.datasets.quality, plan.datasets.perplexity):
            if dataset is not None:
                workspace.keep_dataset(dataset)
        texts_for(spec, plan.datasets, workspace.read_dataset)  # what quantize would refuse after the download
        release = Release(id=plan.release_id, spec=spec, plan=plan, created_at=workspace.clock.now())
        workspace.store.put_bytes(uri, canonical_json(release.model_dump(mode="json")))
    unapplied = _unapplied(spec, live.release.spec) if plan.action == "nothing" and live and live.release else ()
    for line in in_words(plan):
        log.info(line)
    return Outcome(_summary(plan, unapplied), _data(plan, uri, unapplied))


def _planned(request: PlanRequest, spec: ReleaseSpec, live: Live | None, workspace: Workspace) -> Plan:
    _check_gpu(spec, workspace.site)
    engine = engine_for(spec.engine.kind)
    source = _taken(workspace.hub.resolve(spec.source.repo, spec.source.revision))
    adapters = _adapters(spec, workspace)
    documents = _documents(source, READ_AT_PLAN, workspace) | _adapter_documents(adapters, workspace)
    engine.check(spec, workspace.site, source, documents)
    estimate = _with_adapters(engine.estimate(spec, source), adapters)
    _check_fit(spec, workspace.site, estimate)
    tools = _tools(spec, engine, workspace)
    hosting.check(spec, workspace)
    datasets = _pinned(spec, workspace)
    salt = request.run if request.force else None
    fields = stage_fields(spec, source, datasets, tools, adapters=adapters, salt=salt)
    stages = _stages(fields, live, workspace)
    found = release_id(spec.name, stages["publish"].key)
    return Plan(
        release_id=found,
        name=spec.name,
        run=request.run,
        action="nothing" if live and live.release_id == found else "release",
        source=source,
        adapters=adapters,
        datasets=datasets,
        stages=stages,
        live=live.release_id if live else None,
        estimate=estimate,
        forced=request.force,
    )


def _asked(request: PlanRequest) -> ReleaseSpec:
    if request.revision is None:
        return request.spec
    source = request.spec.source.model_copy(update={"revision": request.revision})
    return request.spec.model_copy(update={"source": source})


def _taken(source: Source) -> Source:
    """The source with only the files that a release is made of: weights, configuration, tokenizer. No pickles."""
    top = [file for file in source.files if "/" not in file.path]
    weights = [file for file in top if fnmatchcase(file.path, NAMED_BY_TRANSFORMERS)]
    weights = weights or [file for file in top if fnmatchcase(file.path, SAFETENSORS)]
    return _with_files(source, weights, (*COMPANIONS, INDEX, QUANTIZED_BY_MODELOPT))


def _adapters(spec: ReleaseSpec, workspace: Workspace) -> dict[str, Source]:
    """The adapters of the spec with only their weights and configuration, by name."""
    adapters = {}
    for lora in sorted(spec.engine.lora, key=lambda each: each.name):
        source = workspace.hub.resolve(lora.repo, lora.revision)
        weights = [file for file in source.files if file.path == ADAPTER_WEIGHTS]
        adapters[lora.name] = _with_files(source, weights, (ADAPTER_CONFIG,))
    return adapters


def _with_files(source: Source, weights: Sequence[HubFile], companions: Sequence[str]) -> Source:
    """The source with these weights and what lies beside them at its top by the patterns of `companions`."""
    top = [file for file in source.files if "/" not in file.path]
    if not weights:
        pickles = [file.path for file in top if any(fnmatchcase(file.path, pattern) for pattern in PICKLES)]
        has = f"only {', '.join(pickles[:3])}" if pickles else "no weights at its top"
        raise InputError(
            f"{source.repo}@{source.revision} has {has}; expected *.safetensors, for a pickle can run code. Convert "
            "the weights (transformers: save_pretrained(safe_serialization=True)), or choose a revision that has them."
        )
    others = [file for file in top if any(fnmatchcase(file.path, pattern) for pattern in companions)]
    files = sorted((*weights, *others), key=lambda file: file.path)
    for file in files:
        read_contract(File, {"path": file.path, "sha256": "0" * 64, "size_bytes": 0}, f"{source.repo} {file.path!r}")
    return source.model_copy(update={"files": tuple(files)})


def _adapter_documents(adapters: Mapping[str, Source], workspace: Workspace) -> dict[str, dict[str, Any]]:
    """Each adapter's configuration, by the path that download gives it."""
    return {
        f"{adapter_folder(name)}/{path}": document
        for name, adapter in adapters.items()
        for path, document in _documents(adapter, (ADAPTER_CONFIG,), workspace).items()
    }


def _documents(source: Source, wanted: Iterable[str], workspace: Workspace) -> dict[str, dict[str, Any]]:
    """What the source says of itself, in the files that are small enough to be read for it."""
    names = {file.path for file in source.files}
    documents = {}
    for name in (name for name in wanted if name in names):
        what = f"{source.repo}@{source.revision} {name}"
        try:
            documents[name] = json.loads(workspace.hub.read_file(source, name))
        except ValueError as error:
            raise InputError(f"{what} is no JSON: {error}. Choose another revision, or mend this one.") from error
        if not isinstance(documents[name], dict):
            raise InputError(f"{what} holds a {type(documents[name]).__name__}, expected an object. Mend the revision.")
    return documents


def _check_gpu(spec: ReleaseSpec, site: Site) -> None:
    if spec.engine.gpu is None:
        return
    gpu = site.gpus.get(spec.engine.gpu)
    if gpu is None:
        has = ", ".join(sorted(site.gpus)) or "no GPU"
        raise InputError(
            f"engine.gpu {spec.engine.gpu}: site {site.name} has {has}. Choose a GPU that it has, engine kind "
            "openvino, which needs none, or a site that has this one."
        )
    if spec.engine.tensor_parallel > gpu.per_node:
        instead = "Lower it"
        if spec.engine.kind in MULTI_NODE_KINDS:
            instead += " and raise pipeline_parallel, which may span nodes"
        raise InputError(
            f"engine.tensor_parallel {spec.engine.tensor_parallel}: a node of site {site.name} has {gpu.per_node} "
            f"{spec.engine.gpu}. {instead}, or choose a GPU with more on a node."
        )


def _with_adapters(estimate: Estimate, adapters: Mapping[str, Source]) -> Estimate:
    """They lie on disk as they are downloaded, and once more as they are passed on."""
    size_bytes = sum(adapter.size_bytes for adapter in adapters.values())
    return estimate.model_copy(
        update={
            "download_bytes": estimate.download_bytes + size_bytes,
            "scratch_bytes": estimate.scratch_bytes + 2 * size_bytes,
        }
    )


def _check_fit(spec: ReleaseSpec, site: Site, estimate: Estimate) -> None:
    """Refuse what would run out of disk or memory after hours of work."""
    compute: ShapeName = "gpu" if needs_gpu("quantize", spec) else "compute"
    needs: tuple[tuple[Step, ShapeName, str, int], ...] = (
        ("download", "transfer", "scratch", estimate.download_bytes),
        ("quantize", compute, "scratch", estimate.scratch_bytes),
        ("quantize", compute, "memory", estimate.memory_bytes),
    )
    for step, name, resource, needed_bytes in needs:
        given = getattr(site.shapes.get(name), resource, None)
        if given is not None and needed_bytes > quantity(given):
            raise InputError(
                f"{step} of {spec.source.repo} needs about {needed_bytes / GIB:.2f} GiB of {resource}, shape {name} of "
                f"site {site.name} has {given}. Raise shapes.{name}.{resource} in the site file."
            )


def _pinned(spec: ReleaseSpec, workspace: Workspace) -> Datasets:
    quality, calibration = spec.gate.quality, spec.quantization.calibration
    asked = {
        "calibration": calibration.dataset if calibration else None,
        "quality": quality.dataset if quality else None,
        "perplexity": quality.perplexity if quality else None,
    }
    return Datasets(**{name: workspace.hub.pin_dataset(uri) for name, uri in asked.items() if uri})


def _tools(spec: ReleaseSpec, engine: Engine, workspace: Workspace) -> Tools:
    kind, site = spec.engine.kind, workspace.site
    serving_image = spec.serving.image or site.images.serving.get(kind)
    if serving_image is None:
        raise InputError(
            f"site {site.name} names no serving image for {kind}. Add images.serving.{kind} to the site file or "
            "serving.image to the spec."
        )
    templates = _digests(workspace.templates / kind)
    return Tools(producers=engine.producers(spec, site, serving_image), templates=templates)


def _digests(folder: Path) -> dict[str, str]:
    files = template_files(folder)
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _live(name: str, workspace: Workspace) -> Live | None:
    uri = workspace.layout.channel(name)
    found = workspace.store.read_with_etag(uri)
    channel = read_contract_json(Channel, found[0], uri) if found else None
    if channel is None or channel.live is None:
        return None
    entry = channel.live
    try:
        document = workspace.store.read_bytes(entry.release_uri)
        return Live(entry.release_id, read_contract_json(Release, document, entry.release_uri))
    except InputError as error:  # only the reasons are lost: a release must stay possible
        log.warning("the live release cannot be compared with: %s", error)
        return Live(entry.release_id, None)


def _stages(fields: dict[Stage, Fields], live: Live | None, workspace: Workspace) -> dict[Stage, StagePlan]:
    before = {stage: was.fields for stage, was in live.release.plan.stages.items()} if live and live.release else None
    reasons, keys = explain(fields, before), stage_keys(fields)
    if live and before is None:
        reasons = dict.fromkeys(STAGES, (f"the plan of {live.release_id}, which is live, cannot be read",))
    return {
        stage: StagePlan(
            key=keys[stage],
            stored=workspace.artifacts.find(stage, keys[stage]) is not None,
            fields=fields[stage],
            changed=reasons[stage],
        )
        for stage in STAGES
    }


def _unapplied(spec: ReleaseSpec, live: ReleaseSpec) -> tuple[str, ...]:
    """Sections that differ from the live release's although its artifacts are the ones that were asked for."""
    return tuple(name for name in ("serving", "gate", "rollout") if getattr(spec, name) != getattr(live, name))


def in_words(plan: Plan) -> list[str]:
    """The plan as its log shows it, a line per stage."""
    source = plan.source
    commit, amount = source.commit[:KEY_DIGITS], f"{len(source.files)} files, {size(source.size_bytes)}"
    lines = [f"{source.repo}@{source.revision} is commit {commit}: {amount}; live is {plan.live or 'nothing'}"]
    for name, adapter in plan.adapters.items():
        commit, amount = adapter.commit[:KEY_DIGITS], size(adapter.size_bytes)
        lines.append(f"  adapter {name}: {adapter.repo}@{adapter.revision} is commit {commit}: {amount}")
    for stage, planned in plan.stages.items():
        sign, state = ("=", "stored") if planned.stored else ("+", "to be made")
        why = f": {'; '.join(planned.changed)}" if planned.changed else ""
        lines.append(f"  {sign} {stage:<8} {planned.key[:KEY_DIGITS]}  {state}{why}")
    return lines


def _summary(plan: Plan, unapplied: tuple[str, ...]) -> str:
    if plan.action == "nothing":
        later = f"; changes of {', '.join(unapplied)} apply with the next release, or with --force" if unapplied else ""
        return f"{plan.release_id} is live and is what was asked for: nothing to do{later}"
    missing = plan.missing
    stored = len(plan.stages) - len(missing)
    made = f"{', '.join(missing)} to be made, {stored} of {len(plan.stages)} stored" if missing else "all stored"
    return f"{plan.release_id}: {made}"


def _data(plan: Plan, release_uri: str, unapplied: tuple[str, ...]) -> dict[str, object]:
    return {
        "plan": plan.model_dump(mode="json"),
        "release": release_uri,
        "release_id": plan.release_id,
        "action": plan.action,
        "commit": plan.source.commit,
        "live": plan.live,
        "estimate": plan.estimate.model_dump(mode="json"),
        "unapplied": list(unapplied),
        "stages": {
            stage: {"key": planned.key, "stored": planned.stored, "changed": list(planned.changed)}
            for stage, planned in plan.stages.items()
        },
    }
