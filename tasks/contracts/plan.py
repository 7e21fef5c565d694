"""The plan of a release: keys of its stages, what is stored already, and why the rest is not. Pure arithmetic."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tasks.contracts.artifact import STAGES, Sha256, Stage
from tasks.contracts.base import Contract, sha256_of
from tasks.contracts.spec import ReleaseSpec

INPUTS: dict[Stage, tuple[Stage, ...]] = {
    "download": (),
    "quantize": ("download",),
    "build": ("quantize",),
    "assemble": ("build",),
    "publish": ("assemble", "build"),
}
"""Which artifacts a stage reads; their keys are part of its own."""

RELEASE_DIGITS = 12

ADAPTERS_FOLDER = "lora"
"""Where artifacts of download, quantize and build keep adapters, beside the model's own files."""

Fields = dict[str, Any]
"""What a stage's output depends on, besides its inputs: JSON values by name, nested at will."""


class HubFile(Contract):
    """A file as the Hub announces it, before any byte of it is downloaded."""

    path: str
    digest: str = Field(pattern=r"^(sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40})$", description="LFS sha256 or blob id")
    size_bytes: int = Field(ge=0)


class DatasetFile(Contract):
    """A dataset file pinned by what its bytes are."""

    repo: str
    commit: str
    file: HubFile


class Source(Contract):
    """A model revision resolved to a commit and to the files that will be taken."""

    repo: str
    revision: str = Field(description="as asked")
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    files: tuple[HubFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes that download will fetch."""
        return sum(file.size_bytes for file in self.files)


def adapter_folder(name: str) -> str:
    """Path of a LoRA adapter inside an artifact."""
    return f"{ADAPTERS_FOLDER}/{name}"


class Datasets(Contract):
    """The spec's datasets, pinned."""

    calibration: DatasetFile | None = None
    quality: DatasetFile | None = None
    perplexity: DatasetFile | None = None


class Tools(Contract):
    """Versions of what makes the artifacts, by stage; and the digests of the templates."""

    producers: dict[Stage, dict[str, str]]
    templates: dict[str, Sha256]


class StagePlan(Contract):
    """One stage of a plan."""

    key: Sha256
    stored: bool = Field(description="the artifact exists: no pod is started for this stage")
    fields: Fields
    changed: tuple[str, ...] = Field(default=(), description="why it is not what the live release has, in words")


class Estimate(Contract):
    """What the release will need, from the sizes the Hub announced."""

    download_bytes: int
    scratch_bytes: int
    memory_bytes: int
    gpu_bytes: int = Field(default=0, description="weights that quantize holds on GPUs; 0: it holds none there")


class Plan(Contract):
    """What a release will do."""

    release_id: str
    name: str
    run: str = Field(pattern=r"^[A-Za-z0-9._-]+$", description="identity of the Airflow run, or of a run by hand")
    action: Literal["nothing", "release"]
    source: Source
    adapters: dict[str, Source] = Field(default_factory=dict, description="engine.lora, resolved, by name")
    datasets: Datasets
    stages: dict[Stage, StagePlan]
    live: str | None = Field(description="id of the live release")
    estimate: Estimate
    forced: bool = False

    @property
    def missing(self) -> tuple[Stage, ...]:
        """Stages that have to run, in order."""
        return tuple(stage for stage in STAGES if not self.stages[stage].stored)

    @property
    def download_bytes(self) -> int:
        """Bytes of the model and of its adapters."""
        return self.source.size_bytes + sum(adapter.size_bytes for adapter in self.adapters.values())


class PlanRequest(Contract):
    """What a run asks of plan."""

    remedy = "Correct the argument of that name."

    spec: ReleaseSpec
    run: str = Field(pattern=r"^[A-Za-z0-9._-]+$", description="identity of the Airflow run, or of a run by hand")
    revision: str | None = Field(default=None, min_length=1, description="in place of source.revision")
    force: bool = Field(default=False, description="make every artifact anew, stored or not")


def stage_fields(
    spec: ReleaseSpec,
    source: Source,
    datasets: Datasets,
    tools: Tools,
    *,
    adapters: Mapping[str, Source] | None = None,
    salt: str | None = None,
) -> dict[Stage, Fields]:
    """What each stage's output depends on.

    A commit is no field: two commits with the same files are the same model. Nor are the names of an adapter's
    repository and revision: its files are, by the paths that download gives them. A salt, which a forced run gives,
    makes every key new.
    """
    files = {file.path: file.digest for file in source.files}
    for name, adapter in (adapters or {}).items():
        files |= {f"{adapter_folder(name)}/{file.path}": file.digest for file in adapter.files}
    quality = {"perplexity": datasets.perplexity.file.digest} if datasets.perplexity else {}
    calibration = {"calibration": _calibration(spec, datasets)} if datasets.calibration else {}
    limits = spec.engine.model_dump(mode="json", include={"max_batch_size", "max_input_tokens", "max_sequence_tokens"})
    pinned = {"gpus": list(spec.serving.gpus)} if spec.serving.gpus else {}
    fields: dict[Stage, Fields] = {
        "download": {"files": files},
        "quantize": {
            "engine": {"kind": spec.engine.kind, "gpu": spec.engine.gpu if spec.engine.kind == "trt-engine" else None},
            "quantization": {"format": spec.quantization.format, "kv_cache": spec.quantization.kv_cache, **calibration},
            **quality,
        },
        "build": {"engine": spec.engine.model_dump(mode="json", exclude={"lora"})},
        "assemble": {
            "name": spec.name,
            "engine": {"kind": spec.engine.kind, **limits},
            "templates": tools.templates,
            **pinned,
        },
        "publish": {},
    }
    for stage, versions in tools.producers.items():
        fields[stage]["producer"] = versions
    if salt:
        fields["download"]["salt"] = salt
    return fields


def _calibration(spec: ReleaseSpec, datasets: Datasets) -> Fields:
    asked, pinned = spec.quantization.calibration, datasets.calibration
    assert asked is not None
    assert pinned is not None
    return {"digest": pinned.file.digest, "samples": asked.samples, "max_tokens": asked.max_tokens}


def stage_keys(fields: Mapping[Stage, Fields]) -> dict[Stage, str]:
    """One key per stage: sha256 over its fields and its inputs' keys."""
    keys: dict[Stage, str] = {}
    for stage in STAGES:
        inputs = {name: keys[name] for name in INPUTS[stage]}
        keys[stage] = sha256_of({"stage": stage, "inputs": inputs, "fields": fields[stage]})
    return keys


def release_id(name: str, publish_key: str) -> str:
    """`<name>-<12 hex digits>`: a DNS label that names the release's Deployment."""
    return f"{name}-{publish_key[:RELEASE_DIGITS]}"


def explain(new: Mapping[Stage, Fields], old: Mapping[Stage, Fields] | None) -> dict[Stage, tuple[str, ...]]:
    """Per stage, what differs from the live release, in words.

    A stage whose own fields are the same names the input that changed. Without a live release every stage is new.
    """
    if old is None:
        return dict.fromkeys(STAGES, ("no release is live",))
    reasons: dict[Stage, tuple[str, ...]] = {}
    for stage in STAGES:
        own = _differences(_flat(new[stage]), _flat(old.get(stage, {})))
        inherited = tuple(f"{name} changed" for name in INPUTS[stage] if reasons[name])
        reasons[stage] = own + inherited
    return reasons


def _differences(new: dict[str, Any], old: dict[str, Any]) -> tuple[str, ...]:
    words = []
    for name in sorted(new.keys() | old.keys()):
        if name not in old:
            words.append(f"{name} added: {_short(new[name])}")
        elif name not in new:
            words.append(f"{name} removed: was {_short(old[name])}")
        elif new[name] != old[name]:
            words.append(f"{name}: {_short(old[name])} → {_short(new[name])}")
    return tuple(words)


def _flat(fields: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(fields, dict):
        return {path: fields}
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat.update(_flat(value, f"{path}.{name}" if path else name))
    return flat


def _short(value: Any) -> str:
    text = str(value)
    kind, _, digest = text.partition(":")
    if kind in {"sha256", "git-sha1"} and digest:
        return digest[:12]
    return text if len(text) <= 40 else text[:12] + "…"  # noqa: PLR2004
