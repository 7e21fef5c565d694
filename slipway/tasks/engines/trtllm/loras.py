"""LoRA adapters of an engine, converted for TensorRT-LLM's Triton backend, and the room for them in its caches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import lora_folder
from slipway.tasks.engines.loras import lora_layers, lora_modules, loras_in
from slipway.tasks.engines.preflight.lora_memory import page_bytes
from slipway.tasks.engines.preflight.loras import max_rank, support_of
from slipway.tasks.engines.preflight.memory_fit import GIB, lora_slots
from slipway.tasks.engines.trtllm.commands import LORA_SCRIPT, EngineLora, lora_command, step_tokens
from slipway.tasks.engines.trtllm.tool import run_tool

LORA_WEIGHTS, LORA_CONFIG = "model.lora_weights.npy", "model.lora_config.npy"
"""Names that hf_lora_convert.py gives; a row of the second is [module, layer, rank]."""

MOST_OF_FREE = 0.9
STEPS_OF_FRACTION = 10_000
TRITON_TYPES = {"float16": "TYPE_FP16", "bfloat16": "TYPE_BF16", "float32": "TYPE_FP32"}
"""Type of the backend's input lora_weights: that of the model, which the runtime demands
(cpp/tensorrt_llm/runtime/loraUtils.cpp @ 2a9abd95, loraValidateRequestTensors)."""


@dataclass(frozen=True)
class EngineDimensions:
    """A decoder's dimensions, from the config.json of a TensorRT-LLM checkpoint."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int


def dimensions_of(config: Mapping[str, Any]) -> EngineDimensions:
    """Read the config.json that quantize.py or convert_checkpoint.py wrote.

    Raises:
        InputError: a field is missing.
    """
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return EngineDimensions(
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_size") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
        )
    except KeyError as error:
        raise InputError(
            f"the TensorRT-LLM checkpoint's config.json has no {error.args[0]}, on which the room for adapters depends",
            remedy="Run quantize again; if that does not help, the image holds another TensorRT-LLM.",
        ) from error


def engine_lora(checkpoint: Path, spec: ReleaseSpec) -> EngineLora | None:
    """What the builder must know of the adapters beside the checkpoint; None without any.

    Raises:
        InputError: an adapter is damaged.
    """
    ranks = loras_in(checkpoint, spec)
    if not ranks:
        return None
    return EngineLora(tuple(lora_modules(checkpoint, spec)), max_rank(ranks.values(), support_of(spec)))


def convert_loras(script: Path, checkpoint: Path, spec: ReleaseSpec, out: Path, dtype: str) -> None:
    """Write each adapter's weights in the model's type to its own folder in `out`.

    Raises:
        InputError: the script failed, or left out layers of an adapter.
    """
    for name, changed in lora_layers(checkpoint, spec).items():
        source, target = checkpoint / lora_folder(name), out / lora_folder(name)
        target.mkdir(parents=True)
        with TemporaryDirectory(dir=out.parent) as scratch:
            command = lora_command(script, source, target, dtype)
            run_tool(command, Path(scratch) / "lora.log", f"converting adapter {name}")
        _check_rows(name, sum(map(len, changed.values())), target)


def cache_settings(
    spec: ReleaseSpec, lora: EngineLora, config: Mapping[str, Any], engines: Sequence[Path], gpu_bytes: int
) -> dict[str, Any]:
    """Parameters of the backend's caches: all adapters in the host's memory, as many on the GPU as the spec says.

    The share of the GPU is of what is free once the engine is loaded, before the cache of keys and values takes its own
    (cpp/tensorrt_llm/batch_manager/trtGptModelInflightBatching.cpp). What is free is computed low, so the share is high
    rather than low.

    Args:
        spec: limits and the adapters.
        lora: modules and rank of the engine.
        config: config.json of the TensorRT-LLM checkpoint.
        engines: the engines of all ranks.
        gpu_bytes: memory of a GPU.

    Raises:
        InputError: there is no room for the adapters.
    """
    shape, engine = dimensions_of(config), spec.engine
    page = page_bytes(shape, lora.modules, lora.max_rank, engine.tensor_parallel, engine.pipeline_parallel)
    per_token = 2 * (4 * shape.hidden + 2 * shape.intermediate)
    working = GIB + step_tokens(spec) * per_token + 4 * engine.max_batch_size * shape.vocabulary
    free = gpu_bytes - max(file.stat().st_size for file in engines) - working
    needed = lora_slots(spec) * page
    if needed > MOST_OF_FREE * free:
        raise InputError(
            f"{lora_slots(spec)} adapters need {needed / GIB:.2f} GiB on each {engine.gpu}",
            found=f"{max(0, free) / GIB:.2f} GiB free beside the engine",
            remedy="Lower engine.options.max_loras, or choose a GPU with more memory.",
        )
    return {
        "optimal_adapter_size": lora.max_rank,
        "max_adapter_size": lora.max_rank,
        "gpu_memory_fraction": ceil(needed / free * STEPS_OF_FRACTION) / STEPS_OF_FRACTION,
        "host_memory_bytes": len(engine.lora) * page,
    }


def _check_rows(name: str, expected: int, folder: Path) -> None:
    import numpy as np

    rows = np.load(folder / LORA_CONFIG).shape[-2]
    if rows != expected:
        raise InputError(
            f"{LORA_SCRIPT} left out layers of adapter {name}",
            found=f"{rows} layers",
            expected=f"{expected}, as its weights have",
            remedy="Merge the adapter into the model (PEFT: merge_and_unload) and release that.",
        )
