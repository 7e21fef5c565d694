"""Refuses ways to guess tokens (engine.speculative) that the runtime does not have for the model."""

from collections.abc import Collection, Mapping
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import DRAFT_FOLDER
from slipway.tasks.engines.checkpoint.config_defaults import completed
from slipway.tasks.engines.checkpoint.files import CONFIG, INDEX
from slipway.tasks.engines.checkpoint.predicting_layers import NAMES, lack_predicting, predicting_layers
from slipway.tasks.engines.preflight.hub_metadata import Documents

DRAFT_SIZES = f"{DRAFT_FOLDER}/*"
"""Name of a document that no repository has: the sizes of the draft model's files, by their paths."""


def draft_bytes(documents: Documents) -> int:
    """Bytes of the draft model's weights; 0 without one."""
    return sum(size for path, size in documents.get(DRAFT_SIZES, {}).items() if path.endswith(".safetensors"))


def check_speculation(
    spec: ReleaseSpec, documents: Documents, *, eagle3: Collection[str], mtp: Collection[str]
) -> None:
    """Refuse a method that the runtime does not have for the model, or a draft that does not belong to it.

    Args:
        spec: the release's spec.
        documents: config.json of the model, and of its draft model by its path in the download artifact.
        eagle3: architectures for which the runtime hands its hidden layers to an EAGLE 3 head.
        mtp: model types and architectures whose own layers the runtime lets predict further tokens. Both are those of
            the whole configuration, also where a part of it is the language model's.

    Raises:
        InputError: what cannot work, and what could.
    """
    speculative, config = spec.engine.speculative, documents.get(CONFIG, {})
    if speculative is None:
        return
    _check_combination(spec)
    text = completed(config)
    if speculative.method == "eagle3":
        _check_target(spec, "EAGLE 3", "architectures", [_architecture(config)], eagle3)
    if speculative.method == "mtp":
        names = [str(config.get("model_type")), _architecture(config)]
        _check_target(spec, "multi-token prediction", "model_type", names, mtp)
        _check_predicting_layers(spec, predicting_layers(config), speculative.num_tokens)
        _check_predicting_weights(spec, text, documents.get(INDEX, {}).get("weight_map"))
    if spec.engine.draft is not None:
        _check_draft(spec, text, documents.get(f"{DRAFT_FOLDER}/{CONFIG}"))


def _check_combination(spec: ReleaseSpec) -> None:
    engine = spec.engine
    assert engine.speculative is not None
    if engine.pipeline_parallel > 1:
        raise InputError(
            f"engine.speculative is not known to work with pipeline_parallel for {engine.kind}",
            found=f"pipeline_parallel {engine.pipeline_parallel}",
            remedy="Use tensor_parallel alone, or remove speculative.",
        )
    support = engine.traits.adapters
    if engine.lora and support is not None and not support.guessed_tokens:
        raise InputError(
            f"engine.speculative is not known to work with LoRA adapters for {engine.kind}",
            found=", ".join(adapter.name for adapter in engine.lora),
            remedy="Remove lora or speculative, or choose engine kind vllm.",
        )
    if engine.attention_dp and engine.speculative.method != "mtp":
        raise InputError(
            f"engine.speculative {engine.speculative.method} is not known to work with attention_dp",
            expected="mtp",
            remedy="Remove one of them.",
        )


def _architecture(config: Mapping[str, Any]) -> str:
    return str((config.get("architectures") or ["none"])[0])


def _check_target(spec: ReleaseSpec, what: str, field: str, values: list[str], known: Collection[str]) -> None:
    if not any(value in known for value in values):
        raise InputError(
            f"{spec.engine.kind} has no {what} for {spec.source.model}: {field} in {CONFIG}",
            found=values[0],
            expected=f"one of {', '.join(known)}",
            remedy="Remove engine.speculative, or choose another method.",
        )


def _check_predicting_layers(spec: ReleaseSpec, layers: int, num_tokens: int) -> None:
    if layers < 1:
        raise InputError(
            f"{spec.source.model} has no layers that predict further tokens",
            found=f"none of {', '.join(NAMES)} above 0 in {CONFIG}",
            remedy="Remove engine.speculative, or choose another method.",
        )
    if num_tokens > layers and num_tokens % layers:
        raise InputError(
            f"engine.speculative.num_tokens {num_tokens} is not a multiple of the layers that predict them",
            found=f"{layers} layers in {CONFIG} of {spec.source.model}",
            remedy=f"Choose {num_tokens - num_tokens % layers}, or at most {layers}.",
        )


def _check_predicting_weights(spec: ReleaseSpec, text: Mapping[str, Any], weights: Any) -> None:
    """Refuse a checkpoint whose index has none of the layers that config.json counts, as many quantizers leave it.

    vLLM starts with such layers on GPUs to say so, or guesses with what was in their memory (vllm-project/vllm pull
    request 35548).
    """
    layers = text.get("num_hidden_layers")
    if isinstance(weights, Mapping) and isinstance(layers, int) and lack_predicting(weights, layers):
        raise InputError(
            f"{spec.source.model} has no weights of the layers that predict further tokens",
            found=f"{len(weights)} tensors in {INDEX}, none of layer {layers} or later, or of mtp",
            expected=f"those that {CONFIG} counts",
            remedy="Choose a checkpoint that has them, or remove engine.speculative.",
        )


def _check_draft(spec: ReleaseSpec, config: Mapping[str, Any], draft: Mapping[str, Any] | None) -> None:
    chosen = spec.engine.draft
    assert chosen is not None
    named = f"draft model {chosen.repo}@{chosen.revision}"
    if draft is None:
        raise InputError(f"{named} has no {CONFIG}", remedy="Choose a revision that has it.")
    own, needed = completed(draft).get("vocab_size"), config.get("vocab_size")
    if chosen.method == "draft_model" and own != needed:
        raise InputError(
            f"{named} does not have the vocabulary of {spec.source.model}: vocab_size in {CONFIG}",
            found=str(own),
            expected=str(needed),
            remedy="Choose a smaller model of the same family, whose tokens are the same.",
        )
    if chosen.method == "eagle3":
        _check_head(named, spec, config, draft)


def _check_head(named: str, spec: ReleaseSpec, config: Mapping[str, Any], head: Mapping[str, Any]) -> None:
    """Refuse an EAGLE 3 head of another model: of other tokens it makes ids beyond the model's, on the GPU.

    It may know fewer tokens itself (draft_vocab_size), and be narrower (target_hidden_size), of which
    vllm/model_executor/models/llama_eagle3.py makes the model's at v0.24.0. vLLM compares neither (vllm-project/vllm
    pull request 43369).
    """
    own = {
        "vocab_size": head.get("vocab_size"),
        "hidden_size": head.get("target_hidden_size") or head.get("hidden_size"),
    }
    for field, value in own.items():
        needed = config.get(field)
        if isinstance(value, int) and isinstance(needed, int) and value != needed:
            raise InputError(
                f"{named} is a head of another model than {spec.source.model}: {field} in {CONFIG}",
                found=str(value),
                expected=str(needed),
                remedy="Choose a head that was trained on this model.",
            )
