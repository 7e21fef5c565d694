"""The plan of a release: keys of its stages, what is already stored, and why the rest is not. Pure arithmetic."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from slipway.tasks.contracts.base import Contract, canonical_json, sha256_of
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.kubernetes_text import ReleaseId, RunIdentity
from slipway.tasks.contracts.spec.spec import MAIN, ReleaseSpec
from slipway.tasks.contracts.spec_fields import Revision
from slipway.tasks.contracts.stored.artifact import STAGES, Sha256, Stage

INPUTS: dict[Stage, tuple[Stage, ...]] = {
    "download": (),
    "quantize": ("download",),
    "build": ("quantize",),
    "assemble": ("build",),
    "publish": ("assemble", "build"),
}
"""Which artifacts a stage reads; their keys are part of its own."""

RELEASE_DIGITS = 12

SALT = "salt"
"""Field of download that only a forced run has: its identity."""

ADAPTERS_FOLDER = "lora"
"""Where artifacts of download, quantize and build keep adapters, beside the model's own files."""

DRAFT_FOLDER = "draft"
"""Where the same artifacts keep the model that guesses tokens (engine.speculative)."""

LATER_ENGINE_FIELDS = ("expert_parallel", "attention_dp", "speculative", "overrides")
"""Fields of the engine that are part of no key while they have their defaults, so that no older key changed."""

SHOWN_CHARS, CONTEXT_CHARS = 40, 8
"""Most characters of a value in a reason, and those shown before the first one that differs."""

Fields = dict[str, Any]
"""What a stage's output depends on, besides its inputs: JSON values by name, possibly nested."""


class HubFile(Contract):
    """A file as its source lists it, before any byte of it is downloaded."""

    path: str
    digest: str = Field(
        pattern=r"^(sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40}|etag:[!#-~]{1,200}|stat:[0-9a-f-]{1,80})$",
        description="LFS sha256 or blob id at the Hub; in a folder what SHA256SUMS says, else an object's ETag, or the "
        "times and the size of a file on a volume",
    )
    size_bytes: int = Field(ge=0)


class DatasetFile(Contract):
    """A dataset file pinned by the digest of its bytes."""

    repo: str
    commit: str
    file: HubFile


class Source(Contract):
    """A model revision, or a folder, resolved to a commit and to the files to download."""

    repo: str = Field(description="repository of the Hub, s3://<bucket>/<prefix> or pvc://<claim>[/<folder>]")
    revision: str = Field(
        description="as the spec or the run names it; empty for a folder; of MLflow, models:/<name>/<version>"
    )
    commit: str = Field(
        pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$", description="git's, or the sha256 of what plan saw in the folder"
    )
    files: tuple[HubFile, ...]

    @property
    def is_folder(self) -> bool:
        """Whether it lies in an object store or on a volume, and not at the Hub."""
        return "://" in self.repo

    @property
    def name(self) -> str:
        """How messages name it: `<repo>@<revision>`, or the folder's URI."""
        return f"{self.repo}@{self.revision}" if self.revision else self.repo

    @property
    def pinned(self) -> str:
        """How messages name exactly what was resolved: `<repo>@<first digits of the commit>`."""
        return f"{self.repo}@{self.commit[:RELEASE_DIGITS]}"

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, stored or not."""
        return sum(file.size_bytes for file in self.files)


def lora_folder(name: str) -> str:
    """Path of a LoRA adapter inside an artifact."""
    return f"{ADAPTERS_FOLDER}/{name}"


class Datasets(Contract):
    """The spec's datasets, pinned."""

    calibration: DatasetFile | None = None
    quality: DatasetFile | None = None
    perplexity: DatasetFile | None = None
    load_prompts: DatasetFile | None = Field(default=None, description="of gate.benchmark.prompts")
    harness_questions: dict[str, DatasetFile] = Field(
        default_factory=dict, description="questions of gate.harness's own tasks, by task"
    )
    harness_commits: dict[str, str] = Field(
        default_factory=dict, description="commits of the datasets that lm_eval's tasks read, by task"
    )

    @property
    def files(self) -> tuple[DatasetFile, ...]:
        """Every file, which plan stores."""
        single = (self.calibration, self.quality, self.perplexity, self.load_prompts)
        return (*(file for file in single if file is not None), *self.harness_questions.values())


class Tools(Contract):
    """Versions of the tools that make artifacts, by stage, and the templates' digests."""

    producers: dict[Stage, dict[str, str]]
    templates: dict[str, Sha256]


class StagePlan(Contract):
    """One stage of a plan."""

    key: Sha256
    stored: bool = Field(description="the artifact exists: no pod is started for this stage")
    fields: Fields
    changed: tuple[str, ...] = Field(default=(), description="why it differs from the live release's")

    @property
    def producer(self) -> dict[str, str]:
        """Versions of what makes it, as in its key; `image` is that of the pod, where the image shapes the output."""
        producer: dict[str, str] = self.fields.get("producer", {})
        return producer


class Estimate(Contract):
    """What the release will need, from the sizes that the Hub lists."""

    download_bytes: int = Field(description="of all files, stored or not; BytesToMove has what will move")
    scratch_bytes: int = Field(description="at most, in the pod of quantize, which needs more than other steps do")
    memory_bytes: int = Field(description="at most, in the same pod")
    gpu_bytes: int = Field(default=0, description="weights that quantize holds on GPUs; 0: none")


class Plan(Contract):
    """What a release will do."""

    release_id: ReleaseId
    name: str
    run: RunIdentity = Field(description="identity of the Airflow run, or of a run by hand")
    action: Literal["nothing", "release"]
    source: Source
    adapters: dict[str, Source] = Field(default_factory=dict, description="engine.lora, resolved, by name")
    draft: Source | None = Field(default=None, description="engine.speculative's own model, resolved")
    datasets: Datasets
    stages: dict[Stage, StagePlan]
    live: str | None = Field(description="id of the live release")
    estimate: Estimate
    warnings: tuple[str, ...] = Field(default=(), description="what may surprise a person, and does not stop a release")
    forced: bool = False
    thinks: bool = Field(default=False, description="the chat template mentions thinking")
    rollout: str = Field(default="", description="how the requests move to the release, for a person")
    engine_kind: str = Field(default="", description="the spec's engine kind and the one that suits the model, and why")

    @property
    def missing(self) -> tuple[Stage, ...]:
        """Stages that have to run, in order."""
        return tuple(stage for stage in STAGES if not self.stages[stage].stored)

    @property
    def files_by_path(self) -> dict[str, HubFile]:
        """Files of the model, of its adapters and of its draft model, by their paths in the download artifact."""
        sources = {"": self.source} | {f"{lora_folder(name)}/": each for name, each in self.adapters.items()}
        if self.draft is not None:
            sources[f"{DRAFT_FOLDER}/"] = self.draft
        return {f"{folder}{file.path}": file for folder, source in sources.items() for file in source.files}

    @property
    def files(self) -> tuple[HubFile, ...]:
        """The same files."""
        return tuple(self.files_by_path.values())

    @property
    def download_bytes(self) -> int:
        """Bytes of these files."""
        return sum(file.size_bytes for file in self.files)


class PlanRequest(Contract):
    """The request of a run to plan."""

    if_invalid = "Correct the argument with that name."

    spec: ReleaseSpec
    run: RunIdentity = Field(description="identity of the Airflow run, or of a run by hand")
    revision: Revision | None = Field(default=None, description="in place of source.revision")
    force: bool = Field(default=False, description="make every artifact again, stored or not")
    plan_only: bool = Field(default=False, description="write nothing but the plan's own result")
    site: Sha256 | None = Field(default=None, description="digest of Airflow's site file; absent: a run by hand")

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.spec.name

    @property
    def release_spec(self) -> ReleaseSpec:
        """The spec of the release, with the run's revision in place of its own."""
        if self.revision is None or (self.spec.source.uri and self.revision == MAIN):
            return self.spec
        if self.spec.source.uri:
            raise InputError(
                f"{self.spec.source.uri} has no revisions",
                found=f"revision {self.revision}",
                expected=f"none, or {MAIN}",
                remedy="Leave the revision out, or name other files in source.uri.",
            )
        source = self.spec.source.model_copy(update={"revision": self.revision})
        return self.spec.model_copy(update={"source": source})


def stage_fields(
    spec: ReleaseSpec,
    source: Source,
    datasets: Datasets,
    tools: Tools,
    *,
    adapters: Mapping[str, Source] | None = None,
    draft: Source | None = None,
    salt: str | None = None,
) -> dict[Stage, Fields]:
    """What each stage's output depends on.

    A commit is not a field: two commits with the same files are the same model. Neither are repository and revision of
    an adapter or a draft model; their files are, under the paths that download gives them. The salt of a forced run
    changes every key.
    """
    files = {file.path: file.digest for file in source.files}
    for name, adapter in (adapters or {}).items():
        files |= {f"{lora_folder(name)}/{file.path}": file.digest for file in adapter.files}
    if draft is not None:
        files |= {f"{DRAFT_FOLDER}/{file.path}": file.digest for file in draft.files}
    quality = {"perplexity": datasets.perplexity.file.digest} if datasets.perplexity else {}
    calibration = {"calibration": _calibration(spec, datasets)} if datasets.calibration else {}
    limits = spec.engine.model_dump(mode="json", include={"max_batch_size", "max_input_tokens", "max_sequence_tokens"})
    arguments = dict(spec.engine.chat_template_kwargs)
    wrapped = {"chat_template_kwargs": arguments} if arguments else {}
    pinned = {"gpus": list(spec.serving.gpus)} if spec.serving.gpus else {}
    fields: dict[Stage, Fields] = {
        "download": {"files": files},
        "quantize": {
            "engine": {"kind": spec.engine.kind, "gpu": spec.engine.gpu if spec.engine.traits.compiled else None},
            "quantization": {"format": spec.quantization.format, "kv_cache": spec.quantization.kv_cache, **calibration},
            **quality,
        },
        "build": {"engine": _engine_fields(spec)},
        "assemble": {
            "name": spec.name,
            "engine": {"kind": spec.engine.kind, **limits, **wrapped},
            "templates": tools.templates,
            **pinned,
        },
        "publish": {},
    }
    if spec.engine.traits.compiled and spec.gpus_reached > spec.engine.ranks:
        # an engine records how many GPUs its node has, and loads only on ids below that
        fields["build"]["gpus_per_node"] = spec.gpus_reached
    for stage, versions in tools.producers.items():
        fields[stage]["producer"] = versions
    if salt:
        fields["download"][SALT] = salt
    return fields


def _engine_fields(spec: ReleaseSpec) -> Fields:
    engine = spec.engine
    defaults = {name: type(engine).model_fields[name].default for name in LATER_ENGINE_FIELDS}
    left_out: dict[str, Any] = {name: True for name, value in defaults.items() if getattr(engine, name) == value}
    if engine.draft is not None:
        left_out["speculative"] = {"repo", "revision"}
    return engine.model_dump(mode="json", exclude={"lora": True, "chat_template_kwargs": True, **left_out})


def _calibration(spec: ReleaseSpec, datasets: Datasets) -> Fields:
    settings, pinned = spec.quantization.calibration, datasets.calibration
    assert settings is not None
    assert pinned is not None
    return {"digest": pinned.file.digest, "samples": settings.samples, "max_tokens": settings.max_tokens}


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
    """Per stage, what differs from the live release.

    A stage whose own fields are the same names the input that changed. Without a live release every stage is new.
    """
    if old is None:
        return dict.fromkeys(STAGES, ("no release is live to compare with",))
    reasons: dict[Stage, tuple[str, ...]] = {}
    for stage in STAGES:
        own = _differences(_flat(new[stage]), _flat(old.get(stage, {})))
        inherited = tuple(f"{name} changed" for name in INPUTS[stage] if reasons[name])
        reasons[stage] = own + inherited
    return reasons


def _differences(new: dict[str, Any], old: dict[str, Any]) -> tuple[str, ...]:
    lines = []
    if SALT in new and new[SALT] != old.get(SALT):
        lines.append("made again (--force)")
    elif SALT in old and SALT not in new:
        lines.append("the live release was made with --force")
    for name in sorted((new.keys() | old.keys()) - {SALT}):
        if name not in old:
            lines.append(f"{name} added: {_short(new[name])}")
        elif name not in new:
            lines.append(f"{name} removed: was {_short(old[name])}")
        elif canonical_json(new[name]) != canonical_json(old[name]):  # 1, 1.0 and true are equal, and have three keys
            before, after = _apart(old[name], new[name])
            lines.append(f"{name}: {before} → {after}")
    return tuple(lines)


def _flat(fields: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(fields, dict):
        return {path: fields}
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat.update(_flat(value, f"{path}.{name}" if path else name))
    return flat


def _apart(old: Any, new: Any) -> tuple[str, str]:
    """Two different values as short texts that differ: long ones are cut to where they do."""
    short = _short(old), _short(new)
    if short[0] != short[1] and not any(text.endswith("…") for text in short):
        return short
    texts = str(old), str(new)
    if texts[0] == texts[1]:  # a number and its text
        texts = canonical_json(old).decode(), canonical_json(new).decode()
    alike = next((at for at, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    begin = alike - CONTEXT_CHARS if alike > 2 * CONTEXT_CHARS else 0
    before, after = ("…" * (begin > 0) + _cut(text[begin:], SHOWN_CHARS) for text in texts)
    return before, after


def _short(value: Any) -> str:
    text = str(value)
    kind, _, digest = text.partition(":")
    if kind in {"sha256", "git-sha1", "etag", "stat"} and digest:
        return digest[:12]
    return _cut(text, SHOWN_CHARS)


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[:chars] + "…"
