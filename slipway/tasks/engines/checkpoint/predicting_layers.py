"""Layers of a checkpoint that predict further tokens, which multi-token prediction (MTP) needs. Pure.

transformers' classes leave them out when they load a model (`_keys_to_ignore_on_load_unexpected`), so what is exported
from such a class has none of them.
"""

from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

from slipway.tasks.engines.checkpoint.config_defaults import language_model

NAMES = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""What config.json calls their number (vllm/config/speculative.py, hf_config_override, at v0.19.0 to v0.27.1)."""

LAYERS = ".layers."


def predicting_layers(config: Mapping[str, Any]) -> int:
    """How many layers predict further tokens; 0 where config.json names none."""
    parts = (language_model(config), config)
    numbers = (part.get(name) for part in parts for name in NAMES)
    return next((number for number in numbers if _is_count(number)), 0)


def without_predicting_layers(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the same model without them."""
    kept = {name: 0 if name in NAMES and _is_count(value) else value for name, value in config.items()}
    return {
        name: without_predicting_layers(value) if isinstance(value, Mapping) else value for name, value in kept.items()
    }


def lost_layers(source: Collection[str], exported: Collection[str], layers: int) -> list[int]:
    """Decoder layers that have tensors in the source and none in what was exported from it.

    Within a layer names may differ: experts are written one by one or together.

    Args:
        source: names of tensors.
        exported: names of tensors.
        layers: how many decoder layers the model has; further ones predict.
    """
    return sorted(number for number in _layers(source) - _layers(exported) if number < layers)


def lack_predicting(names: Collection[str], layers: int) -> bool:
    """Whether tensors are of a decoder's layers, and none of layers that predict: beyond it, or named so.

    Args:
        names: names of tensors.
        layers: how many decoder layers the model has.
    """
    numbers = _layers(names)
    named = any(mark in name.lower() for name in names for mark in ("mtp", "nextn"))
    return bool(numbers) and max(numbers) < layers and not named


def _layers(names: Collection[str]) -> set[int]:
    """Numbers of the decoder layers that tensors belong to; those of `mtp.layers` predict."""
    parts = (name.partition(LAYERS) for name in names if "mtp" not in name.split("."))
    numbers = (rest.partition(".")[0] for _, layer, rest in parts if layer)
    return {int(number) for number in numbers if number.isdecimal()}


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
