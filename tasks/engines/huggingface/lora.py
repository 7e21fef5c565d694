"""Reads the LoRA adapters beside a checkpoint, and sets vLLM's arguments that make room for them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.contracts.plan import adapter_folder
from tasks.contracts.spec import ReleaseSpec
from tasks.engines.checkpoint.files import check_weights, read_object
from tasks.engines.preflight.adapters import ADAPTER_CONFIG, max_rank, rank_of
from tasks.engines.preflight.memory_fit import adapter_slots


def adapters_in(checkpoint: Path, spec: ReleaseSpec) -> dict[str, int]:
    """Ranks of the adapters beside a checkpoint, by name, in order of name.

    Raises:
        InputError: one that the spec names is missing or unreadable.
    """
    ranks = {}
    for adapter in sorted(spec.engine.lora, key=lambda each: each.name):
        folder = checkpoint / adapter_folder(adapter.name)
        check_weights(folder)
        ranks[adapter.name] = rank_of(adapter, read_object(folder / ADAPTER_CONFIG))
    return ranks


def adapter_arguments(spec: ReleaseSpec, ranks: Mapping[str, int]) -> dict[str, Any]:
    """Fields of AsyncEngineArgs that make room for adapters; empty without any.

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
