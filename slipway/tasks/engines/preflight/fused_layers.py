"""Refuses checkpoints in which vLLM would find a layer that it fuses partly quantized. Pure.

vLLM computes the projections of queries, keys and values as one layer, and others likewise (`packed_modules_mapping` of
a class). It loads them only if all parts have the same scheme (should_ignore_layer of
vllm/model_executor/layers/quantization/compressed_tensors/utils.py, at v0.24.0, v0.27.1 and v0.32.0).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slipway.tasks.contracts.engine.engine_kinds import NEWEST_VLLM
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.preflight.known_classes import architectures_of
from slipway.tasks.engines.preflight.source_formats import COMPRESSED, name_of
from slipway.tasks.engines.upstream.tables import table_of

AS_REGEX = "re:"
FOLDERS = {"qkv_proj": "self_attn", "gate_up_proj": "mlp"}
"""Where models have the layers that regular expressions name."""
SIMPLE = re.compile(r"(?:\.\*)?(?:[\w-]|\\?\.)+(?:\.\*|\$)?")
"""What quantizers write: a literal, maybe with anything before or after it. Others, which a stranger may have made slow
to match, are taken to match nothing, and their checkpoints are not judged."""
LONGEST_PATTERN, MOST_PATTERNS = 200, 100
ANY_LAYER = "N"

Matches = Callable[[str], bool]


def check_fused_layers(config: Mapping[str, Any], stated: Any, version: str, what: str) -> None:
    """Refuse a list of compressed-tensors' that ignores a part of a fused layer and not the others.

    Args:
        config: config.json.
        stated: its quantization_config.
        version: of vLLM.
        what: the source, for the message.

    Raises:
        InputError: the parts that are ignored, and those that are not.
    """
    if not isinstance(stated, Mapping) or not name_of(stated).startswith(COMPRESSED):
        return
    ignored = _names(stated.get("ignore"))
    patterns = [name.removeprefix(AS_REGEX) for name in ignored if name.startswith(AS_REGEX)]
    if len(patterns) > MOST_PATTERNS or not all(_is_simple(pattern) for pattern in patterns):
        return
    for whole, *parts in _fused(config, version):
        _check(whole, parts, ignored, what)


def _check(whole: str, parts: Sequence[str], names: Sequence[str], what: str) -> None:
    matches, exact = _matcher(names), set(names)
    for folder in _folders(whole, parts, names):
        named = [part for part in parts if matches(f"{folder}.{part}")]
        if named and len(named) < len(parts) and f"{folder}.{whole}" not in exact:
            others = [part for part in parts if part not in named]
            raise InputError(
                f"vLLM computes {', '.join(parts)} of {what} as one layer, and they are quantized differently",
                found=f"quantization_config ignores {', '.join(named)} of {folder} without {', '.join(others)}",
                expected="all of them, or none",
                remedy="Quantize the model again with all of them in the same list, or choose another checkpoint.",
            )


def _folders(whole: str, parts: Sequence[str], names: Sequence[str]) -> list[str]:
    """Where the parts may be: beside each name that is one of them, and where a regular expression finds them."""
    endings = tuple(f".{part}" for part in parts)
    exact = {name.rpartition(".")[0] for name in names if name.endswith(endings) and not name.startswith(AS_REGEX)}
    usual = {f"model.layers.{ANY_LAYER}.{FOLDERS[whole]}"} if whole in FOLDERS else set()
    return sorted(exact | usual)


def _fused(config: Mapping[str, Any], version: str) -> list[list[str]]:
    table = table_of("vllm", version) or table_of("vllm", NEWEST_VLLM) or {}
    named = architectures_of(config)
    fused = table.get("fused", {})
    return [layers.split() for layers, classes in fused.items() if any(each in classes for each in named)]


def _matcher(names: Sequence[str]) -> Matches:
    exact = {name for name in names if not name.startswith(AS_REGEX)}
    patterns = [re.compile(name.removeprefix(AS_REGEX)) for name in names if name.startswith(AS_REGEX)]
    return lambda layer: layer in exact or any(pattern.match(layer) for pattern in patterns)


def _is_simple(pattern: str) -> bool:
    return len(pattern) <= LONGEST_PATTERN and SIMPLE.fullmatch(pattern) is not None


def _names(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
