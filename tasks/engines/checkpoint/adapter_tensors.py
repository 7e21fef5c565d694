"""Reads which layers a LoRA adapter changes from the header of its weights, whose names PEFT gives."""

import re
from pathlib import Path

from tasks.contracts.errors import InputError
from tasks.engines.checkpoint.foreign import refusing

LORA_TENSOR = re.compile(
    r"base_model\.model\.(?:language_model\.)?(?:model\.)?(?:language_model\.)?layers\.([0-9]{1,5})"
    r"\.(?:self_attn|mlp)\.(\w+)\.lora_([AB])\.weight"
)
"""A matrix of a linear layer of a decoder. Not those of a vision tower, an expert or the vocabulary: TensorRT-LLM skips
these, or takes them for another layer's (lora_manager.py, HF_LORA_PATTERN; examples/hf_lora_convert.py)."""


def changed_layers(weights: Path, what: str) -> dict[str, frozenset[int]]:
    """Numbers of the decoder layers that an adapter changes, by PEFT's name of the linear layer in them.

    Args:
        weights: adapter_model.safetensors.
        what: names the adapter in messages.

    Raises:
        InputError: the file is damaged, or has tensors that are not of a linear layer of a decoder, or half a pair.
    """
    from safetensors import safe_open

    damaged = f"{weights.name} of {what} is not a readable safetensors file"
    with refusing(damaged, "Choose another revision."), safe_open(weights, framework="np") as tensors:
        names = sorted(tensors.keys())
    matches = {name: LORA_TENSOR.fullmatch(name) for name in names}
    foreign = [name for name, match in matches.items() if match is None]
    pairs: dict[tuple[str, int], set[str]] = {}
    for match in filter(None, matches.values()):
        pairs.setdefault((match[2], int(match[1])), set()).add(match[3])
    halves = [f"layer {number} {layer}" for (layer, number), both in pairs.items() if both != set("AB")]
    foreign += [f"only one matrix of {half}" for half in halves]
    if foreign or not pairs:
        raise InputError(
            f"{what} has weights that TensorRT-LLM would leave out or apply to another layer",
            found=", ".join(foreign[:3]) or "no tensors",
            expected="lora_A and lora_B of linear layers of the decoder, and nothing else",
            remedy="Merge the adapter into the model (PEFT: merge_and_unload) and release that, or choose another.",
        )
    layers = {layer for layer, _ in pairs}
    return {layer: frozenset(number for name, number in pairs if name == layer) for layer in sorted(layers)}
