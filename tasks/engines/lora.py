"""LoRA adapters that vLLM loads beside a checkpoint: what PEFT wrote of them, and arguments that make room for them.

vLLM reads an adapter at the first request that chooses it, when the server is up; what it would refuse then is refused
here, before any pod starts.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.plan import adapter_folder
from tasks.contracts.spec import Lora, ReleaseSpec
from tasks.engines.announced import Documents
from tasks.engines.checkpoint import check_weights, read_object
from tasks.engines.memory import adapter_slots

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
"""Fields of adapter_config.json whose adapters are refused. The first two vLLM refuses itself, as it does biases
(vllm/lora/peft_helper.py); the others it does not read: it scales every layer by the one lora_alpha / r."""


def check_adapters(spec: ReleaseSpec, documents: Documents) -> None:
    """Refuse adapters that vLLM cannot serve; one that was trained on another model is only warned of.

    Args:
        spec: what was asked.
        documents: each adapter's adapter_config.json by its path in the download artifact.

    Raises:
        InputError: which adapter, and what of it; or room was asked for adapters that there are none of.
    """
    if "max_loras" in spec.engine.options and not spec.engine.lora:
        raise InputError("engine.options.max_loras: engine.lora names no adapter. Remove the option, or name adapters.")
    for adapter in spec.engine.lora:
        config = _config(adapter, documents)
        _check_kind(adapter, config)
        rank_of(adapter, config)
        base = config.get("base_model_name_or_path")
        if base != spec.source.repo:
            log.warning(
                "adapter %s says that it was trained on %s, the model is %s", adapter.name, base, spec.source.repo
            )


def highest_rank(spec: ReleaseSpec, documents: Documents) -> int:
    """`max_lora_rank` for the spec's adapters; 0 without any."""
    return max_rank(rank_of(adapter, _config(adapter, documents)) for adapter in spec.engine.lora)


def max_rank(ranks: Iterable[int]) -> int:
    """The smallest value that vLLM takes and that holds all of `ranks`; 0 of none."""
    highest = max(ranks, default=0)
    return next(size for size in MAX_RANKS if size >= highest) if highest else 0


def rank_of(adapter: Lora, config: Mapping[str, Any]) -> int:
    """An adapter's rank.

    Raises:
        InputError: adapter_config.json names none that vLLM holds.
    """
    rank = config.get("r")
    if not isinstance(rank, int) or not 1 <= rank <= MAX_RANKS[-1]:
        raise InputError(
            f"{_named(adapter)}: r is {rank!r} in {ADAPTER_CONFIG}, expected a rank of 1 to {MAX_RANKS[-1]}. Choose "
            "another revision."
        )
    return rank


def adapters_in(checkpoint: Path, spec: ReleaseSpec) -> dict[str, int]:
    """Rank by name of the adapters that lie beside a checkpoint, in the order of their names.

    Raises:
        InputError: one that the spec names is not there or not readable.
    """
    ranks = {}
    for adapter in sorted(spec.engine.lora, key=lambda each: each.name):
        folder = checkpoint / adapter_folder(adapter.name)
        check_weights(folder)
        ranks[adapter.name] = rank_of(adapter, read_object(folder / ADAPTER_CONFIG))
    return ranks


def adapter_arguments(spec: ReleaseSpec, ranks: Mapping[str, int]) -> dict[str, Any]:
    """Fields of AsyncEngineArgs that make room for adapters; none without any.

    All of them stay in the host's memory; `max_loras` of them are on the GPU at once.
    """
    if not ranks:
        return {}
    return {
        "enable_lora": True,
        "max_loras": adapter_slots(spec),
        "max_cpu_loras": len(ranks),
        "max_lora_rank": max_rank(ranks.values()),
    }


def _config(adapter: Lora, documents: Documents) -> Mapping[str, Any]:
    config = documents.get(f"{adapter_folder(adapter.name)}/{ADAPTER_CONFIG}")
    if config is None:
        raise InputError(
            f"{_named(adapter)} has no {ADAPTER_CONFIG}; expected an adapter as PEFT saves it. Choose a revision "
            "that has it."
        )
    return config


def _check_kind(adapter: Lora, config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise InputError(
            f"{_named(adapter)}: peft_type is {config.get('peft_type')!r} in {ADAPTER_CONFIG}, expected 'LORA', the "
            "only kind of adapter that vLLM serves. Choose a LoRA adapter."
        )
    found = [f"{words} ({field})" for field, words in NOT_SERVED.items() if config.get(field)]
    if config.get("bias", "none") != "none":
        found.append(f"biases (bias {config['bias']})")
    if found:
        raise InputError(
            f"{_named(adapter)} has {', '.join(found)}, which vLLM does not serve as an adapter. Merge it into the "
            "model (PEFT: merge_and_unload) and release that, or choose another adapter."
        )


def _named(adapter: Lora) -> str:
    return f"adapter {adapter.name} ({adapter.repo}@{adapter.revision})"
