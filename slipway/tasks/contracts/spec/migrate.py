"""Rewrites a spec for another engine kind that runs on GPUs, and says what changes and what is lost. Pure.

What a client would notice is refused by name, for a person to decide: adapters, sampling, a scaler's metric. What only
costs memory or time is rewritten or left out, and said.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, ROOM, EngineKind, EngineTraits, kinds_with
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.fleet import fleet_document, member_documents, read_specs
from slipway.tasks.contracts.spec.gpu_formats import KV_CACHES
from slipway.tasks.contracts.spec.spec import CALIBRATED, ReleaseSpec

INSTEAD: Mapping[str, tuple[str, ...]] = {
    "int8_wo": ("fp8_online", "int4_awq"),
    "int4_wo": ("int4_awq", "fp8_online"),
    "int8_sq": ("fp8_online", "int4_awq"),
    "int4_awq": ("fp8_online",),
    "w4a8_awq": ("int4_awq", "fp8_online"),
    "fp8_online": ("int8_wo",),
}
"""Formats that may replace one that the other kind lacks, best first: the nearest size that runs on every GPU that the
format itself runs on, or on most (slipway/tasks/contracts/spec/gpu_formats.py). `none` replaces what has none."""

STORED_BITS = {
    "none": 16,
    **dict.fromkeys(("int8_wo", "int8_sq", "fp8", "fp8_online"), 8),
    **dict.fromkeys(("int4_wo", "int4_awq", "w4a8_awq", "nvfp4"), 4),
}
"""Bits of a weight, without scales."""


@dataclass(frozen=True)
class Migration:
    """A rewritten spec, and what a person should know about it."""

    document: dict[str, Any]
    changes: tuple[str, ...]
    without_equivalent: tuple[str, ...]


@dataclass
class _Rewriting:
    """A spec on its way to another kind; each step of `migrate` edits the document and adds lines."""

    spec: ReleaseSpec
    kind: EngineKind
    document: dict[str, Any]
    changes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def before(self) -> EngineTraits:
        return self.spec.engine.traits

    @property
    def after(self) -> EngineTraits:
        return ENGINE_KINDS[self.kind]

    @property
    def engine(self) -> dict[str, Any]:
        section: dict[str, Any] = self.document["engine"]
        return section

    @property
    def quantization(self) -> dict[str, Any]:
        section: dict[str, Any] = self.document["quantization"]
        return section

    def refusal(self, what: str, found: str, remedy: str) -> InputError:
        return InputError(
            f"{self.spec.name} cannot be migrated from {self.spec.engine.kind} to {self.kind}: {what}",
            found=found,
            remedy=remedy,
        )


def migrate(spec: ReleaseSpec, document: Mapping[str, Any], to: EngineKind) -> Migration:
    """Rewrite a spec for another engine kind.

    Args:
        spec: a spec of a kind that runs on GPUs.
        document: the same spec as in its file, so that other fields stay as they were written.
        to: another kind that runs on GPUs.

    Raises:
        InputError: the spec is of that kind or runs on CPUs, or it has something that the other kind cannot hold.
    """
    _check_kinds(spec, to)
    rewriting = _Rewriting(spec, to, copy.deepcopy(dict(document)))
    _kind(rewriting)
    _check_answers(rewriting)
    _check_measurements(rewriting)
    _format(rewriting)
    _kv_cache(rewriting)
    _calibration(rewriting)
    _options(rewriting)
    _speculation(rewriting)
    _experts(rewriting)
    _nodes(rewriting)
    _image(rewriting)
    _server(rewriting)
    read_contract(ReleaseSpec, rewriting.document, f"{spec.name} migrated to {to}")
    return Migration(rewriting.document, tuple(rewriting.changes), tuple(rewriting.lost))


def migrate_fleet(
    models: Sequence[ReleaseSpec], document: Mapping[str, Any], to: EngineKind
) -> tuple[dict[str, Any], dict[str, Migration]]:
    """Rewrite the spec of a fleet; what is known of each member that was not of the kind before, by its name.

    Raises:
        InputError: as of `migrate`, of one of the members.
    """
    others = [model for model in models if model.engine.kind != to] or models
    documents = member_documents(document, models)
    migrations: dict[str, Migration] = {}
    for place, model in zip(documents, models, strict=True):
        if model in others:
            migrations[model.name] = migrate(model, documents[place], to)
            documents[place] = migrations[model.name].document
    rewritten = fleet_document(document, documents)
    read_specs(rewritten, f"{document['name']} migrated to {to}")
    return rewritten, migrations


def _check_kinds(spec: ReleaseSpec, to: EngineKind) -> None:
    kind, on_gpus = spec.engine.kind, kinds_with("on_gpu")
    if kind not in on_gpus or to not in on_gpus or kind == to:
        raise InputError(
            f"engine.kind of {spec.name} cannot be migrated to {to}",
            found=kind,
            expected=" or ".join(name for name in on_gpus if name != to),
            remedy="Name another kind with --to, or write a spec of it by hand.",
        )


def _kind(rewriting: _Rewriting) -> None:
    before, after, kind = rewriting.before, rewriting.after, rewriting.kind
    rewriting.engine["kind"] = kind
    what = "an engine is built for the GPU product" if after.compiled else "nothing is built; a checkpoint is served"
    rewriting.changes.append(f"engine.kind: {rewriting.spec.engine.kind} → {kind}: {what}")
    if before.quantized_by_modelopt != after.quantized_by_modelopt:
        tool = (
            "ModelOpt in its own image (images.modelopt of the site)" if after.quantized_by_modelopt else "quantize.py"
        )
        rewriting.changes.append(f"quantize of a format that is calibrated runs {tool}")


def _check_answers(rewriting: _Rewriting) -> None:
    """Refuse what clients choose by name, and sampling that the gate measures."""
    spec, after = rewriting.spec, rewriting.after
    if spec.engine.lora and after.adapters is None:
        names = ", ".join(adapter.name for adapter in spec.engine.lora)
        raise rewriting.refusal("it serves no LoRA adapters", names, "Remove engine.lora.")
    if spec.adapters and ROOM not in after.options:
        names = ", ".join(adapter.name for adapter in spec.adapters)
        raise rewriting.refusal("it takes no adapters while it is live", names, "Move adapters to engine.lora.")
    if spec.engine.overrides is not None and not after.reads_config:
        raise rewriting.refusal(
            "it does not read config.json", "engine.overrides", "Remove it, and lower engine.max_sequence_tokens."
        )
    engine = spec.engine.model_copy(update={"kind": rewriting.kind})
    quality = [("gate.quality", spec.gate.quality)] if spec.gate.quality else []
    for section, parameters in [*(("gate.smoke", each) for each in spec.gate.smoke), *quality]:
        if problem := engine.sampling_problem(parameters):
            raise rewriting.refusal(f"{section} is sampled in another way", problem, f"Change {section}.")


def _check_measurements(rewriting: _Rewriting) -> None:
    """Refuse limits on what the other kind does not measure, and a scaler that would follow nothing."""
    spec, after = rewriting.spec, rewriting.after
    if not after.measures_perplexity and spec.gate.quality is not None and spec.gate.quality.perplexity is not None:
        raise rewriting.refusal(
            "it measures no perplexity",
            "gate.quality.perplexity",
            "Remove it and its lines of gate.expect; gate.quality.dataset measures answers.",
        )
    scaled = spec.serving.autoscale
    if scaled is not None and scaled.metric not in after.scaling_metrics:
        raise rewriting.refusal(
            "its server does not export the metric that replicas follow",
            f"serving.autoscale.metric {scaled.metric}",
            f"Choose {', '.join(sorted(after.scaling_metrics))} with a target of its own.",
        )
    if spec.serving.group is not None and spec.engine.ranks > 1 and not after.several_gpus_in_a_group:
        raise rewriting.refusal(
            "in a group it runs on one GPU",
            f"{spec.engine.ranks} in serving.group {spec.serving.group}",
            "Remove serving.group and serving.gpus.",
        )


def _format(rewriting: _Rewriting) -> None:
    requested, has_texts = rewriting.spec.quantization.format, rewriting.spec.quantization.calibration is not None
    served = _formats(rewriting)
    if requested in served:
        return
    candidates = (*INSTEAD.get(requested, ()), "none")
    chosen = next(each for each in candidates if each in served and (has_texts or each not in CALIBRATED))
    rewriting.quantization["format"] = chosen
    larger = STORED_BITS[chosen] / STORED_BITS[requested]
    size = "the same size" if larger == 1 else f"{larger:g} times the size"
    texts = "" if has_texts or not CALIBRATED & served else "; smaller ones need quantization.calibration"
    rewriting.lost.append(f"quantization.format {requested}: rewritten to {chosen}, {size}{texts}")


def _formats(rewriting: _Rewriting) -> frozenset[str]:
    """Formats that the other kind serves; with adapters, those on which it applies them."""
    adapters = rewriting.after.adapters
    formats = frozenset[str](rewriting.after.formats)
    if not rewriting.spec.engine.lora or adapters is None or adapters.formats is None:
        return formats
    return formats & (adapters.formats | {"none"})


def _kv_cache(rewriting: _Rewriting) -> None:
    requested, quantization = rewriting.spec.quantization.kv_cache, rewriting.quantization
    if requested == "none":
        return
    if not any((row.kind, row.format) == (rewriting.kind, requested) for row in KV_CACHES):
        quantization["kv_cache"] = "none"
        rewriting.lost.append(f"quantization.kv_cache {requested}: rewritten to none, which takes twice the memory")
        return
    texts = quantization.get("calibration") is not None
    reads_texts = _rewritten_quantization(rewriting).reads_texts(rewriting.after)
    if reads_texts and not texts:
        quantization["kv_cache"] = "none"
        rewriting.lost.append(
            f"quantization.kv_cache {requested}: rewritten to none, which takes twice the memory; {rewriting.kind} "
            "takes its scales from quantization.calibration, which the spec does not have"
        )
    elif texts and not reads_texts:
        rewriting.lost.append(
            f"scales of quantization.kv_cache {requested}: beside weights that are not quantized, {rewriting.kind} "
            "stores keys and values with scale 1.0 in place of a calibrated one"
        )


def _rewritten_quantization(rewriting: _Rewriting) -> Any:
    changed = {"format": rewriting.quantization["format"], "kv_cache": rewriting.quantization.get("kv_cache", "none")}
    return rewriting.spec.quantization.model_copy(update=changed)


def _calibration(rewriting: _Rewriting) -> None:
    if _rewritten_quantization(rewriting).reads_texts(rewriting.after):
        return
    if rewriting.quantization.pop("calibration", None) is not None:
        rewriting.changes.append("quantization.calibration removed: no texts are read for this format")


def _options(rewriting: _Rewriting) -> None:
    options, after = rewriting.engine.get("options") or {}, rewriting.after
    lost = {name for name in options if name not in after.options}
    if ROOM in lost and not rewriting.spec.engine.lora:
        lost.add("max_loras")  # it limits adapters, of which there are none now
    for name in [name for name in options if name in lost]:
        value = options.pop(name)
        if name in after.does_by_itself:
            rewriting.changes.append(f"engine.options.{name} removed: {rewriting.kind} does it by itself")
        else:
            rewriting.lost.append(f"engine.options.{name} {value}: {rewriting.kind} has no such setting")
    if after.always_chunks and options.get("chunked_prefill") is False:
        del options["chunked_prefill"]
        rewriting.lost.append(f"engine.options.chunked_prefill false: {rewriting.kind} always computes in chunks")
    if "kv_cache_fraction" in options and rewriting.before.cache_share_of_free != after.cache_share_of_free:
        share = "memory that the model leaves free" if after.cache_share_of_free else "whole GPU, the model included"
        rewriting.changes.append(f"engine.options.kv_cache_fraction stays, and is now a share of the {share}")
    if not options:
        rewriting.engine.pop("options", None)


def _speculation(rewriting: _Rewriting) -> None:
    speculative, after = rewriting.spec.engine.speculative, rewriting.after
    if speculative is None:
        return
    if speculative.method not in after.speculative:
        why = f"{rewriting.kind} has no such method"
    elif rewriting.spec.engine.lora and after.adapters is not None and not after.adapters.guessed_tokens:
        why = f"{rewriting.kind} applies no adapters where tokens are guessed"
    else:
        return
    del rewriting.engine["speculative"]
    rewriting.lost.append(f"engine.speculative {speculative.method}: {why}; answers are the same, and slower")


def _experts(rewriting: _Rewriting) -> None:
    engine, after = rewriting.spec.engine, rewriting.after
    if engine.attention_dp and not after.attention_dp:
        del rewriting.engine["attention_dp"]
        rewriting.lost.append(f"engine.attention_dp: {rewriting.kind} divides the attention of every request")
    if engine.expert_parallel == 1 or after.expert_parallel == "any":
        return
    if after.expert_parallel == "none":
        del rewriting.engine["expert_parallel"]
        rewriting.lost.append(f"engine.expert_parallel {engine.expert_parallel}: {rewriting.kind} splits every expert")
    elif engine.expert_parallel != engine.tensor_parallel:
        rewriting.engine["expert_parallel"] = engine.tensor_parallel
        rewriting.changes.append(
            f"engine.expert_parallel: {engine.expert_parallel} → {engine.tensor_parallel}: {rewriting.kind} shares out "
            "experts over all ranks, or over none"
        )


def _nodes(rewriting: _Rewriting) -> None:
    before, after, ranks = rewriting.before, rewriting.after, rewriting.spec.engine.ranks
    if ranks > 1 and before.spans_nodes and not after.spans_nodes:
        rewriting.lost.append(
            f"several nodes: plan takes the {ranks} GPUs only if one node has them, because {after.one_node_because}"
        )


def _image(rewriting: _Rewriting) -> None:
    image, flavour = rewriting.spec.serving.image, rewriting.after.flavour
    if image is None:
        return
    if flavour == rewriting.before.flavour:
        rewriting.changes.append(f"serving.image stays: {rewriting.kind} needs Triton with {flavour} too")
        return
    del rewriting.document["serving"]["image"]
    rewriting.changes.append(f"serving.image {image} removed: {rewriting.kind} needs Triton with {flavour}")


def _server(rewriting: _Rewriting) -> None:
    before, after = rewriting.before, rewriting.after
    if before.server_per_rank and not after.server_per_rank:
        rewriting.lost.append(
            "ensemble and tensorrt_llm_bls with their parts: one model with the spec's name replaces them"
        )
    if metrics := sorted(before.scaling_metrics - after.scaling_metrics):
        rewriting.lost.append(f"metrics of the server that replicas may follow: {', '.join(metrics)}")
    if after.final_channel_only and not before.final_channel_only:
        rewriting.changes.append("answers in channels (gpt-oss): only the final channel is returned")
    elif before.final_channel_only and not after.final_channel_only:
        rewriting.changes.append("answers in channels (gpt-oss): all channels are returned, as one text")
    if lost := sorted(before.sampling - after.sampling):
        rewriting.lost.append(f"requests with {', '.join(lost)}: {rewriting.kind} does not obey them")
