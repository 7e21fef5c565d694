"""Reads the LoRA adapters beside a checkpoint: their ranks, and the layers that they change."""

from collections.abc import Iterator
from pathlib import Path

from slipway.tasks.contracts.spec.engine import Lora
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import lora_folder
from slipway.tasks.engines.checkpoint.config_defaults import completed
from slipway.tasks.engines.checkpoint.files import CONFIG, check_weights, read_object
from slipway.tasks.engines.checkpoint.lora_modules import modules_of
from slipway.tasks.engines.checkpoint.lora_tensors import (
    PLAIN,
    Base,
    Shape,
    changed_layers,
    check_adapter,
    check_matrices,
    shapes_in,
)
from slipway.tasks.engines.preflight.hub_metadata import QUANTIZED_BY_MODELOPT
from slipway.tasks.engines.preflight.loras import ADAPTER_CONFIG, ADAPTER_WEIGHTS, check_layers, rank_of, support_of


def loras_in(checkpoint: Path, spec: ReleaseSpec) -> dict[str, int]:
    """Ranks of the adapters beside a checkpoint, by name, in order of name.

    Raises:
        InputError: one that the spec names is missing or unreadable.
    """
    ranks = {}
    for adapter, folder in _folders(checkpoint, spec):
        check_weights(folder)
        ranks[adapter.name] = rank_of(adapter, read_object(folder / ADAPTER_CONFIG), support_of(spec))
    return ranks


def check_lora_weights(checkpoint: Path, spec: ReleaseSpec) -> None:
    """Refuse adapters beside a Hugging Face checkpoint whose weights the runtime would not apply, or not all of them.

    plan knows only what adapter_config.json says of them, which may be a pattern, or not true.

    Raises:
        InputError: the adapter, and what of it.
    """
    if not spec.engine.lora:
        return
    if support_of(spec).layers is not None:
        _check_served_layers(checkpoint, spec)
    ranks, base = loras_in(checkpoint, spec), base_of(checkpoint)
    for adapter, folder in _folders(checkpoint, spec):
        check = check_matrices if support_of(spec).layers is not None else check_adapter
        check(folder / ADAPTER_WEIGHTS, ranks[adapter.name], base, f"adapter {adapter.name}")


def _check_served_layers(checkpoint: Path, spec: ReleaseSpec) -> None:
    names = (name for name in (CONFIG, QUANTIZED_BY_MODELOPT) if (checkpoint / name).is_file())
    documents = {name: read_object(checkpoint / name) for name in names}
    changed = lora_layers(checkpoint, spec)
    for adapter, _ in _folders(checkpoint, spec):
        check_layers(spec, adapter, changed[adapter.name], documents)


def base_of(checkpoint: Path) -> Base:
    """What adapters are compared with: shapes of weights with a number in each element, and modules of any format."""
    shapes: dict[str, Shape] = {}
    names: set[str] = set()
    for file in sorted(checkpoint.glob("*.safetensors")):
        shapes |= shapes_in(file, "the model", PLAIN)
        names |= shapes_in(file, "the model").keys()
    hidden = completed(read_object(checkpoint / CONFIG)).get("hidden_size")
    modules = {name.rpartition(".")[0] for name in names if "expert" not in name}
    return Base(shapes, sorted(modules), hidden if isinstance(hidden, int) else None)


def lora_layers(checkpoint: Path, spec: ReleaseSpec) -> dict[str, dict[str, frozenset[int]]]:
    """What each adapter beside a checkpoint changes, by its weights: numbers of decoder layers by PEFT's layer name.

    Raises:
        InputError: an adapter is damaged, or has weights that are not of a decoder's linear layers.
    """
    return {
        adapter.name: changed_layers(folder / ADAPTER_WEIGHTS, f"adapter {adapter.name}")
        for adapter, folder in _folders(checkpoint, spec)
    }


def lora_modules(checkpoint: Path, spec: ReleaseSpec) -> list[str]:
    """TensorRT-LLM's names of the layers that the adapters change together."""
    changed = lora_layers(checkpoint, spec).values()
    return modules_of({layer for layers in changed for layer in layers})


def _folders(checkpoint: Path, spec: ReleaseSpec) -> Iterator[tuple[Lora, Path]]:
    for adapter in sorted(spec.engine.lora, key=lambda each: each.name):
        yield adapter, checkpoint / lora_folder(adapter.name)
