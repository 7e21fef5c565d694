"""Reads a LoRA adapter's matrices, and the layers that they change, from the header of its weights."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.checkpoint.foreign import QUOTED_CHARS, refusing

LORA_TENSOR = re.compile(
    r"base_model\.model\.(?:language_model\.)?(?:model\.)?(?:language_model\.)?layers\.([0-9]{1,5})"
    r"\.(?:self_attn|mlp)\.(\w+)\.lora_([AB])\.weight"
)
"""A matrix of a linear layer of a decoder. Not those of a vision tower, an expert or the vocabulary: TensorRT-LLM skips
these, or takes them for another layer's (lora_manager.py, HF_LORA_PATTERN; examples/hf_lora_convert.py)."""


LORA_MATRIX = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_(?:([AB])\.weight|embedding_([AB]))")
"""A matrix of any layer (peft/utils/save_and_load.py), of which vLLM reads these names and no others
(vllm/lora/utils.py, parse_fine_tuned_lora_name, at v0.24.0 and v0.32.0)."""
NOT_READ = ".base_layer.weight"
"""Ending of a model's own weight beside its adapter, which vLLM skips (is_base_embedding_weights)."""
GATE_AND_UP = "experts.base_layer"
STACKED = ("experts", GATE_AND_UP)
"""Endings of modules that hold all experts of a layer in one weight: their matrices have a rank for each expert."""

PLAIN = frozenset({"BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2"})
"""Types of safetensors with one number in each element; an integer may hold several of a quantized weight."""

Shape = tuple[int, ...]


EXEMPT = ("lm_head", "embed_tokens")
"""Layers whose weight a model may not have: it may share one of them, or call it otherwise."""
LAYER = re.compile(r"(?:^|\.)(layers\.[0-9]{1,5}\..+)$")
"""The part of a module's name that does not depend on the models around a language model."""


class Base(NamedTuple):
    """What adapters are compared with: the weights of the model that they change."""

    shapes: Mapping[str, Shape]
    """Shapes by name of the weights that have one number in each element."""
    modules: Collection[str]
    """Names of modules with weights in any format, without experts."""
    hidden: int | None
    """hidden_size of its configuration."""


def check_adapter(weights: Path, rank: int, base: Base, what: str) -> None:
    """Refuse an adapter that a runtime which takes any layer would not apply, or not all of it.

    Args:
        weights: adapter_model.safetensors.
        rank: what adapter_config.json says.
        base: the model.
        what: names the adapter in messages.

    Raises:
        InputError: the file is damaged, or its matrices or layers are not those of an adapter of this model.
    """
    check_matrices(weights, rank, base, what)
    _check_modules(weights, base.modules, what)
    if base.hidden is not None:
        _check_experts(weights, base.hidden, what)


def _check_experts(weights: Path, hidden: int, what: str) -> None:
    """Refuse an adapter of all experts at once whose matrices are those of transposed weights.

    PEFT takes a parameter's second dimension for its inputs. Where a class has [experts, outputs, inputs], as Qwen3.5's
    in transformers 5, vLLM's engine ends when it loads the adapter (vllm-project/vllm pull request 52194).

    Args:
        weights: adapter_model.safetensors.
        hidden: hidden_size of the model: inputs of gate and up, and outputs of down.
        what: names the adapter in messages.

    Raises:
        InputError: the file is damaged, or a matrix is of another size.
    """
    for name, shape in sorted(shapes_in(weights, what).items()):
        match = LORA_MATRIX.fullmatch(name)
        if match is None or not match[1].endswith(STACKED) or len(shape) != 2:  # noqa: PLR2004 - a matrix
            continue
        is_first = match[1].endswith(GATE_AND_UP)
        size = {"A": shape[1], "B": shape[0]}[match[2] or match[3]]
        if is_first is (match[2] == "A") and size != hidden:
            raise InputError(
                f"{what} has matrices of transposed experts, which vLLM does not load",
                found=f"{name} with {size} {'inputs' if is_first else 'outputs'}",
                expected=f"{hidden}, the model's hidden_size",
                remedy="Merge the adapter into the model (PEFT: merge_and_unload) and release that.",
            )


def _check_modules(weights: Path, modules: Collection[str], what: str) -> None:
    """Refuse an adapter that changes layers which the model does not have: a runtime would leave them out.

    Args:
        weights: adapter_model.safetensors.
        modules: names of the model's own tensors without their last part, of any type.
        what: names the adapter in messages.

    Raises:
        InputError: the file is damaged, or the layers.
    """
    known = {_in_layer(name) for name in modules}
    matches = [LORA_MATRIX.fullmatch(name) for name in shapes_in(weights, what)]
    changed = {match[1] for match in matches if match and not _is_exempt(match[1])}
    if foreign := sorted(module for module in changed if _in_layer(module) not in known):
        raise InputError(
            f"{what} changes {len(foreign)} layers that the model does not have",
            found=", ".join(foreign[:3])[:QUOTED_CHARS],
            expected="layers of the model",
            remedy="Choose the model that it was trained on, or another adapter.",
        )


def _in_layer(module: str) -> str:
    match = LAYER.search(module)
    return match[1] if match else module.rpartition(".")[2]


def _is_exempt(module: str) -> bool:
    """Whether the names of an adapter's and a model's layers may differ: experts are stored in several ways."""
    return module.endswith(EXEMPT) or "expert" in module


def check_matrices(weights: Path, rank: int, base: Base, what: str) -> None:
    """Refuse an adapter whose matrices the runtime could not apply; it would find out at the first request for it.

    Args:
        weights: adapter_model.safetensors.
        rank: what adapter_config.json says: A is [rank, inputs], and B is [outputs, rank].
        base: the model. A layer that has no shape there is compared with nothing.
        what: names the adapter in messages.

    Raises:
        InputError: the file is damaged, or a matrix is of another rank or size, has no partner, or is none of LoRA's.
    """
    pairs: dict[str, dict[str, Shape]] = {}
    problems: list[str] = []
    for name, shape in shapes_in(weights, what).items():
        if match := LORA_MATRIX.fullmatch(name):
            pairs.setdefault(match[1], {})[match[2] or match[3]] = shape
        elif not name.endswith(NOT_READ):
            problems.append(name)
    problems += [found for module, pair in pairs.items() if (found := _mismatch(module, pair, rank, base.shapes))]
    if problems or not pairs:
        raise InputError(
            f"{what} has weights that do not fit its rank or the model",
            found="; ".join(sorted(problems)[:3])[:QUOTED_CHARS] or "no matrices",
            expected=f"pairs of lora_A [{rank}, inputs] and lora_B [outputs, {rank}], as adapter_config.json says",
            remedy="Choose another revision, or an adapter that was trained on this model.",
        )


def shapes_in(weights: Path, what: str, dtypes: Collection[str] = ()) -> dict[str, Shape]:
    """Shapes of a file's tensors, by name; only of those with one of `dtypes`, if there are any.

    Raises:
        InputError: the file is damaged.
    """
    from safetensors import safe_open

    damaged = f"{weights.name} of {what} is not a readable safetensors file"
    with refusing(damaged, "Choose another revision."), safe_open(weights, framework="np") as tensors:
        slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118 - no mapping
        return {
            name: tuple(each.get_shape()) for name, each in slices.items() if not dtypes or each.get_dtype() in dtypes
        }


def _mismatch(module: str, pair: Mapping[str, Shape], rank: int, model: Mapping[str, Shape]) -> str | None:
    """What is wrong with the matrices of a module; None where nothing is."""
    if pair.keys() != {"A", "B"} or any(len(shape) != 2 for shape in pair.values()):  # noqa: PLR2004 - a matrix
        return f"{module}: {dict(sorted(pair.items()))}"
    (rows, inputs), (outputs, columns) = pair["A"], pair["B"]
    stacked = module.endswith(STACKED)
    if rows != columns or (rows % rank if stacked else rows != rank):
        return f"{module}: A {list(pair['A'])}, B {list(pair['B'])}"
    own = model.get(f"{module}.weight")
    # a layer's weight is [outputs, inputs]; that of a vocabulary and of Conv1D is [inputs, outputs]
    if own is not None and not stacked and sorted(own) != sorted((inputs, outputs)):
        return f"{module}: {inputs} inputs and {outputs} outputs, the model's weight is {list(own)}"
    return None


def changed_layers(weights: Path, what: str) -> dict[str, frozenset[int]]:
    """Numbers of the decoder layers that an adapter changes, by PEFT's name of the linear layer in them.

    Args:
        weights: adapter_model.safetensors.
        what: names the adapter in messages.

    Raises:
        InputError: the file is damaged, or has tensors that are not of a linear layer of a decoder, or half a pair.
    """
    names = sorted(shapes_in(weights, what))
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
