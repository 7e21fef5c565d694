"""Refuses LoRA adapters (as PEFT saves them) that vLLM would refuse, before any pod starts.

vLLM itself reads an adapter at the first request for it, when the server is up.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.plan import adapter_folder
from tasks.contracts.spec import Lora, ReleaseSpec
from tasks.engines.preflight.hub_metadata import Documents

log = logging.getLogger(__name__)

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
"""Names that PEFT gives and vLLM looks for (vllm/lora/lora_model.py, from_local_checkpoint)."""

MAX_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of `max_lora_rank` (vllm/config/lora.py @ 01230b40, MaxLoRARanks)."""

NOT_SERVED = {
    "modules_to_save": "layers trained in full",
    "use_dora": "DoRA",
    "rank_pattern": "ranks that differ between layers",
    "alpha_pattern": "scales that differ between layers",
}
"""Fields of adapter_config.json that are refused when set. vLLM itself refuses the first two, and biases
(vllm/lora/peft_helper.py); it ignores the others, and scales every layer by the one lora_alpha / r."""


def check_adapters(spec: ReleaseSpec, documents: Documents) -> None:
    """Refuse adapters that vLLM cannot serve; only warn of one that was trained on another model.

    Args:
        spec: the release's spec.
        documents: each adapter's adapter_config.json by its path in the download artifact.

    Raises:
        InputError: which adapter, and what is wrong with it; or max_loras is set without adapters.
    """
    if "max_loras" in spec.engine.options and not spec.engine.lora:
        raise InputError(
            "engine.options.max_loras has no effect: engine.lora names no adapter",
            remedy="Remove the option, or name adapters.",
        )
    for adapter in spec.engine.lora:
        config = _config(adapter, documents)
        _check_kind(adapter, config)
        rank_of(adapter, config)
        base = config.get("base_model_name_or_path")
        if base != spec.source.repo:
            log.warning("adapter %s names %s as its base model, the model is %s", adapter.name, base, spec.source.repo)


def highest_rank(spec: ReleaseSpec, documents: Documents) -> int:
    """`max_lora_rank` for the spec's adapters; 0 without any."""
    return max_rank(rank_of(adapter, _config(adapter, documents)) for adapter in spec.engine.lora)


def max_rank(ranks: Iterable[int]) -> int:
    """The smallest value that vLLM accepts and that covers all of `ranks`; 0 without any."""
    highest = max(ranks, default=0)
    return next(size for size in MAX_RANKS if size >= highest) if highest else 0


def rank_of(adapter: Lora, config: Mapping[str, Any]) -> int:
    """An adapter's rank.

    Raises:
        InputError: adapter_config.json has none that vLLM serves.
    """
    rank = config.get("r")
    if not isinstance(rank, int) or not 1 <= rank <= MAX_RANKS[-1]:
        raise InputError(
            f"{_named(adapter)} has no rank that vLLM serves: r in {ADAPTER_CONFIG}",
            found=repr(rank),
            expected=f"1 to {MAX_RANKS[-1]}",
            remedy="Choose another revision.",
        )
    return rank


def _config(adapter: Lora, documents: Documents) -> Mapping[str, Any]:
    config = documents.get(f"{adapter_folder(adapter.name)}/{ADAPTER_CONFIG}")
    if config is None:
        raise InputError(
            f"{_named(adapter)} has no {ADAPTER_CONFIG}",
            expected="an adapter as PEFT saves it",
            remedy="Choose a revision that has it.",
        )
    return config


def _check_kind(adapter: Lora, config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise InputError(
            f"{_named(adapter)} is not a LoRA adapter, the only kind that vLLM serves: peft_type in {ADAPTER_CONFIG}",
            found=repr(config.get("peft_type")),
            expected="'LORA'",
            remedy="Choose a LoRA adapter.",
        )
    refused = [f"{feature} ({field})" for field, feature in NOT_SERVED.items() if config.get(field)]
    if config.get("bias", "none") != "none":
        refused.append(f"biases (bias {config['bias']})")
    if refused:
        raise InputError(
            f"{_named(adapter)} has parts that vLLM does not serve in an adapter",
            found=", ".join(refused),
            remedy="Merge it into the model (PEFT: merge_and_unload) and release that, or choose another adapter.",
        )


def _named(adapter: Lora) -> str:
    return f"adapter {adapter.name} ({adapter.repo}@{adapter.revision})"
