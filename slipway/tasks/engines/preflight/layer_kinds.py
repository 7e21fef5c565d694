"""Which layers of a decoder keep a KV cache, read from config.json as the runtimes read it. Pure.

A hybrid model has layers that keep a state of fixed size (Mamba, linear attention, convolutions), layers without either
(experts, MLP) and layers that use the cache of an earlier one. vLLM counts layers by `layers_block_type`,
`attn_type_list`, `layer_types` and `block_configs` (vllm/config/model.py, get_num_layers_by_block_type); transformers'
configuration classes derive the first from the other fields here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

Fields = Mapping[str, Any]

CACHING = frozenset({"attention", "full_attention", "sliding_attention", "chunked_attention", "hybrid", "*"})
"""Kinds of layers that keep keys and values; `hybrid` is Mamba with shared attention (Zamba 2), `*` stands in the
pattern of Nemotron-H."""

INTERVALS: Mapping[str, int] = {"qwen3_next": 4, "qwen3_5_text": 4, "qwen3_5_moe_text": 4}
"""Types of which every so many layers have full attention and the others linear attention, unless the configuration
says otherwise (transformers, full_attention_interval)."""

ATTENTION_FREE = frozenset({"mamba", "mamba2", "falcon_mamba"})
"""Types without any attention."""

PERIOD_OF_JAMBA = (8, 4)
"""attn_layer_period and attn_layer_offset of JambaConfig."""


def caching_layers(text: Fields, layers: int) -> tuple[bool, ...]:
    """Say of each of the language model's `layers` layers whether it keeps a KV cache."""
    caches = _by_kind(text, layers)
    shared = text.get("num_kv_shared_layers")
    if _is_number(shared) and 0 < shared < layers:  # Gemma 3n and 4: the last ones read the cache of earlier ones
        caches = (*caches[: layers - shared], *([False] * shared))
    return caches


def is_hybrid(text: Fields, layers: int) -> bool:
    """Whether some layers keep a state in place of keys and values; a layer that DeciLM leaves out keeps nothing."""
    kinds = {name: value for name, value in text.items() if name != "block_configs" or _has_types(value)}
    return not all(_by_kind(kinds, layers))


def _has_types(blocks: Any) -> bool:
    return isinstance(blocks, list) and any(isinstance(block, Mapping) and "block_type" in block for block in blocks)


def _by_kind(text: Fields, layers: int) -> tuple[bool, ...]:
    if text.get("model_type") in ATTENTION_FREE:
        return (False,) * layers
    for name, read in READERS.items():
        value = text.get(name)
        found = read(value, text, layers) if value is not None else None
        if found is not None and len(found) == layers:
            return tuple(found)
    interval = INTERVALS.get(str(text.get("model_type")))
    if interval:
        return _every(interval, layers)
    return _in_period(*PERIOD_OF_JAMBA, layers) if text.get("model_type") == "jamba" else (True,) * layers


def _of_list(value: Any, _text: Fields, _layers: int) -> Sequence[bool] | None:
    return [kind in CACHING for kind in value] if isinstance(value, list | str) else None


def _of_attention_types(value: Any, _text: Fields, _layers: int) -> Sequence[bool] | None:
    return [kind == 1 for kind in value] if isinstance(value, list) else None  # MiniMax: 0 is linear attention


def _of_blocks(value: Any, _text: Fields, _layers: int) -> Sequence[bool] | None:
    if not isinstance(value, list):
        return None
    return [_block_caches(block) for block in value]


def _block_caches(block: Any) -> bool:
    block = block if isinstance(block, Mapping) else {}
    if isinstance(block.get("block_type"), str):  # Nemotron-H Puzzle
        return block["block_type"] in CACHING
    attention = block.get("attention")
    attention = attention if isinstance(attention, Mapping) else {}
    return not attention.get("no_op") and not attention.get("replace_with_linear")


def _of_indices(value: Any, _text: Fields, layers: int) -> Sequence[bool] | None:
    return [layer in value for layer in range(layers)] if isinstance(value, list) else None


def _of_linear_config(value: Any, _text: Fields, layers: int) -> Sequence[bool] | None:
    """Kimi Linear counts its layers from 1."""
    full = value.get("full_attn_layers") if isinstance(value, Mapping) else None
    return [layer + 1 in full for layer in range(layers)] if isinstance(full, list) else None


def _of_period(value: Any, text: Fields, layers: int) -> Sequence[bool] | None:
    offset = text.get("attn_layer_offset", 0)
    return _in_period(value, offset, layers) if _is_number(value) and value > 0 and _is_number(offset) else None


def _of_interval(value: Any, _text: Fields, layers: int) -> Sequence[bool] | None:
    return _every(value, layers) if _is_number(value) and value > 0 else None


def _in_period(period: int, offset: int, layers: int) -> tuple[bool, ...]:
    return tuple(layer % period == offset for layer in range(layers))


def _every(interval: int, layers: int) -> tuple[bool, ...]:
    return tuple((layer + 1) % interval == 0 for layer in range(layers))


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


READERS: Mapping[str, Callable[[Any, Fields, int], Sequence[bool] | None]] = {
    "layers_block_type": _of_list,
    "hybrid_override_pattern": _of_list,
    "attn_type_list": _of_attention_types,
    "layer_types": _of_list,
    "block_configs": _of_blocks,
    "linear_attn_config": _of_linear_config,
    "attn_layer_indices": _of_indices,
    "full_attn_idxs": _of_indices,
    "hybrid_layer_ids": _of_indices,
    "attn_layer_period": _of_period,
    "full_attention_interval": _of_interval,
}
"""Fields that say which layers have attention, in the order in which they count: those of Nemotron-H and its pattern,
MiniMax, Qwen3.5 and Granite 4, DeciLM, Kimi Linear, Bamba, older LFM2, Zamba, Jamba, and Qwen3-Next without a list."""
