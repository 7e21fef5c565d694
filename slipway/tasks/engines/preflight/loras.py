"""Refuses LoRA adapters (as PEFT saves them) that the release's runtime cannot serve, before any pod starts.

The runtimes themselves read an adapter at the first request for it, when the server is up.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from slipway.tasks.contracts.engine.engine_kinds import ROOM, kinds_with_adapters
from slipway.tasks.contracts.engine.lora_support import LoraSupport
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.engine import Lora
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import lora_folder
from slipway.tasks.engines.checkpoint.foreign import LARGEST, QUOTED_CHARS
from slipway.tasks.engines.preflight.hub_metadata import Documents
from slipway.tasks.engines.preflight.lora_base import MERGE, architecture_of, check_base, format_of

log = logging.getLogger(__name__)

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
"""Names that PEFT gives, and that vLLM and TensorRT-LLM look for (vllm/lora/lora_model.py, from_local_checkpoint;
tensorrt_llm/lora_manager.py, HfLoraLoader)."""

NOT_SERVED = {
    "modules_to_save": "layers trained in full",
    "use_dora": "DoRA",
    "rank_pattern": "ranks that differ between layers",
    "alpha_pattern": "scales that differ between layers",
    "lora_bias": "biases",
    "trainable_token_indices": "single tokens that were trained",
    "layer_replication": "layers of the model that it repeats",
    "alora_invocation_tokens": "an adapter that begins at certain tokens (aLoRA)",
    "use_qalora": "inputs that are pooled (QALoRA)",
    "use_bdlora": "matrices in diagonal blocks (BD-LoRA)",
    "arrow_config": "a router between adapters (Arrow)",
    "kasa_config": "singular values beside the matrices (KaSA)",
    "monteclora_config": "samples at every step (Monte Carlo LoRA)",
}
"""Fields of adapter_config.json (PEFT's LoraConfig) that are refused when set. vLLM 0.24.0 itself refuses the first
two, and biases (vllm/lora/peft_helper.py; 0.32.0 refuses most of them); it ignores the others, scales every layer by
the one lora_alpha / r, and refuses weights whose names it does not know at the first request. TensorRT-LLM ignores them
too (examples/hf_lora_convert.py), and leaves out parts that it does not know."""
READ = frozenset(
    {"peft_type", "base_model_name_or_path", "r", "lora_alpha", "bias", "target_modules", "init_lora_weights"}
    | {"target_parameters", "use_rslora"}
)
"""Further fields that are read here or by the runtimes."""
OF_TRAINING = frozenset(
    {"task_type", "auto_mapping", "peft_version", "revision", "inference_mode", "lora_dropout", "fan_in_fan_out"}
    | {"exclude_modules", "layers_to_transform", "layers_pattern", "megatron_config", "megatron_core"}
    | {"loftq_config", "eva_config", "corda_config", "lora_ga_config", "velora_config", "runtime_config"}
    | {"qalora_group_size", "ensure_weight_tying"}
)
"""Fields that say how an adapter is trained or where its matrices are, which the weights' own names say too."""
KEPT_BASES = frozenset({"gaussian", "eva", "orthogonal", "mica", "lora_ga"})
"""Named values of init_lora_weights with which PEFT leaves the model's weights alone when it loads the adapter. With
any other (pissa, olora, corda, loftq) it takes a part of them away, which no runtime does (_init_is_supported of
vllm/lora/peft_helper.py at v0.32.0; update_layer of peft/tuners/lora/layer.py at 0.21.2)."""


def check_loras(spec: ReleaseSpec, documents: Documents) -> None:
    """Refuse adapters that the runtime cannot serve; only warn of one that was trained on another model.

    Args:
        spec: the release's spec.
        documents: config.json, and each adapter's adapter_config.json by its path in the download artifact.

    Raises:
        InputError: which adapter, and what is wrong with it; or max_loras is set without adapters.
    """
    if "max_loras" in spec.engine.options and not (spec.engine.lora or spec.engine.room_rank):
        raise InputError(
            "engine.options.max_loras has no effect: engine.lora names no adapter",
            remedy=f"Remove the option, name adapters, or set {ROOM} for adapters that are added to the live model.",
        )
    if spec.engine.room_rank and not spec.engine.room:
        raise InputError(
            f"engine.options.{ROOM} makes room for adapters, and it is not said for how many",
            remedy="Set engine.options.max_loras.",
        )
    if not (spec.engine.lora or spec.engine.room_rank):
        return
    support = support_of(spec)
    check_base(spec, support, documents)
    for adapter in spec.engine.lora:
        config = _config(adapter, documents)
        _check_kind(adapter, config, support)
        rank_of(adapter, config, support)
        check_layers(spec, adapter, declared_layers(config), documents)
        _check_stacked(adapter, config, support, architecture_of(documents))
        _warn_of_unknown(adapter, config)
        base = config.get("base_model_name_or_path")
        if spec.source.repo and base != spec.source.repo:
            log.warning("adapter %s names %s as its base model, the model is %s", adapter.name, base, spec.source.model)


def support_of(spec: ReleaseSpec) -> LoraSupport:
    """What the spec's engine kind serves of adapters; a spec with adapters has a kind that serves some."""
    support = spec.engine.traits.adapters
    assert support is not None
    return support


def highest_rank(spec: ReleaseSpec, documents: Documents) -> int:
    """The rank that the runtime makes room for, with the spec's adapters or for later ones; 0 without any."""
    if not (spec.engine.lora or spec.engine.room_rank):
        return 0
    support = support_of(spec)
    ranks = [rank_of(adapter, _config(adapter, documents), support) for adapter in spec.engine.lora]
    return max_rank((*ranks, spec.engine.room_rank), support)


def max_rank(ranks: Iterable[int], support: LoraSupport) -> int:
    """The smallest rank that the runtime can make room for and that covers all of `ranks`; 0 without any."""
    highest = max(ranks, default=0)
    return next(size for size in support.room if size >= highest) if highest else 0


def rank_of(adapter: Lora, config: Mapping[str, Any], support: LoraSupport) -> int:
    """An adapter's rank.

    Raises:
        InputError: adapter_config.json has none that the runtime serves.
    """
    rank = config.get("r")
    if not isinstance(rank, int) or rank not in support.ranks:
        raise InputError(
            f"{_named(adapter)} has no rank that {support.runtime} serves: r in {ADAPTER_CONFIG}",
            found=repr(rank)[:QUOTED_CHARS],
            expected=_range(support.ranks),
            remedy="Choose another revision.",
        )
    return rank


def declared_layers(config: Mapping[str, Any]) -> frozenset[str]:
    """Layers that adapter_config.json lists by name; none where it has a pattern, which build checks by the weights."""
    modules = config.get("target_modules")
    if not isinstance(modules, list):
        return frozenset()
    return frozenset(str(module).rpartition(".")[2] for module in modules)


def check_layers(spec: ReleaseSpec, adapter: Lora, layers: Collection[str], documents: Documents) -> None:
    """Refuse layers to which the runtime would not apply the adapter.

    Args:
        spec: the release's spec.
        adapter: the adapter of it.
        layers: PEFT's names of the layers that it changes.
        documents: config.json of the model, and ModelOpt's file beside it where there is one.

    Raises:
        InputError: the layers, and those that it could change.
    """
    support = support_of(spec)
    if support.layers is None:
        return
    architecture, actual = architecture_of(documents), format_of(spec, documents)
    served = support.layers[architecture] - support.quantized_inputs.get(actual, frozenset())
    if foreign := sorted(set(layers) - served):
        raise InputError(
            f"{_named(adapter)} changes layers to which {support.runtime} applies no adapter, in {architecture} with "
            f"format {actual}",
            found=", ".join(foreign),
            expected=f"some of {', '.join(sorted(served))}",
            remedy=f"Merge it into the model (PEFT: merge_and_unload) and release that, or choose another engine kind: "
            f"{', '.join(kind for kind in kinds_with_adapters() if kind != spec.engine.kind)}.",
        )


def _config(adapter: Lora, documents: Documents) -> Mapping[str, Any]:
    config = documents.get(f"{lora_folder(adapter.name)}/{ADAPTER_CONFIG}")
    if config is None:
        raise InputError(
            f"{_named(adapter)} has no {ADAPTER_CONFIG}",
            expected="an adapter as PEFT saves it",
            remedy="Choose a revision that has it.",
        )
    return config


def _check_kind(adapter: Lora, config: Mapping[str, Any], support: LoraSupport) -> None:
    if config.get("peft_type") != "LORA":
        raise InputError(
            f"{_named(adapter)} is not a LoRA adapter, the only kind that {support.runtime} serves: peft_type in "
            f"{ADAPTER_CONFIG}",
            found=repr(config.get("peft_type")),
            expected="'LORA'",
            remedy="Choose a LoRA adapter.",
        )
    refused = [f"{feature} ({field})" for field, feature in NOT_SERVED.items() if config.get(field)]
    initial = config.get("init_lora_weights")
    if isinstance(initial, str) and initial.lower() not in KEPT_BASES:
        refused.append(
            f"a model whose weights PEFT changes before it applies the adapter (init_lora_weights {initial})"
        )
    if config.get("bias", "none") != "none":
        refused.append(f"biases (bias {config['bias']})")
    if not _is_scale(alpha := config.get("lora_alpha")):
        raise InputError(
            f"{_named(adapter)} has no scale: lora_alpha in {ADAPTER_CONFIG}",
            found=repr(alpha)[:QUOTED_CHARS],
            expected="a number",
            remedy="Choose another revision.",
        )
    if refused:
        raise InputError(
            f"{_named(adapter)} has parts that {support.runtime} does not serve in an adapter",
            found=", ".join(refused)[:QUOTED_CHARS],
            remedy="Merge it into the model (PEFT: merge_and_unload) and release that, or choose another adapter.",
        )


def _check_stacked(adapter: Lora, config: Mapping[str, Any], support: LoraSupport, architecture: str) -> None:
    """Refuse an adapter of experts that share one parameter, where the runtime does not apply it.

    Raises:
        InputError: the parameters, and the architectures in which it is applied.
    """
    parameters = config.get("target_parameters")
    if parameters and architecture not in support.stacked_experts:
        raise InputError(
            f"{_named(adapter)} changes experts in one parameter (target_parameters in {ADAPTER_CONFIG}), which "
            f"{support.runtime} does not apply in {architecture}",
            found=str(parameters)[:QUOTED_CHARS],
            expected=", ".join(sorted(support.stacked_experts)),
            remedy=f"{MERGE}, or choose an adapter of other layers.",
        )


def _warn_of_unknown(adapter: Lora, config: Mapping[str, Any]) -> None:
    if unknown := sorted(name for name in config if config[name] and name not in {*NOT_SERVED, *READ, *OF_TRAINING}):
        fields = ", ".join(unknown)[:QUOTED_CHARS]
        log.warning(
            "adapter %s says %s in %s, which is not known: compare its answers", adapter.name, fields, ADAPTER_CONFIG
        )


def _is_scale(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _range(ranks: tuple[int, ...]) -> str:
    """The ranks in words: those at the beginning that are no part of the steady rest, and the rest."""
    step = ranks[-1] - ranks[-2]
    if step == 1:
        return f"{ranks[0]} to {ranks[-1]}"
    irregular = [str(rank) for rank in ranks if rank < step]
    return f"{', '.join(irregular)}, or a multiple of {step} up to {ranks[-1]}"


def _named(adapter: Lora) -> str:
    return f"adapter {adapter.name} ({adapter.repo}@{adapter.revision})"
