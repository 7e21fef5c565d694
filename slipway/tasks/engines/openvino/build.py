"""Turns compressed OpenVINO IR into an engine that is proven to load and generate."""

import json
import logging
from importlib.metadata import version
from pathlib import Path
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.chat_template import check_renders
from slipway.tasks.engines.checkpoint.files import copy_companions, read_config
from slipway.tasks.engines.checkpoint.positions import check_limits
from slipway.tasks.engines.openvino.ir import KV_CACHE_PRECISION, MODEL
from slipway.tasks.engines.openvino.proof import prove
from slipway.tasks.engines.openvino.tokenizer import convert
from slipway.tasks.engines.passthrough import link_file
from slipway.tasks.serving.rendered.paths import ENGINE_DESCRIPTION

log = logging.getLogger(__name__)

KV_BLOCK_TOKENS = 32
"""Tokens of one block of the paged KV cache on CPU (OpenVINO GenAI 2026.4, continuous batching)."""

BATCHED_TOKENS = 256
"""Prompt and answer tokens of one scheduler step; long prompts are split so that running answers go on (GenAI's own
default)."""

WEIGHT_TYPES: dict[str, tuple[str, ...]] = {"none": ("f16",), "int8": ("u8", "i8"), "int4": ("u4", "i4")}
FLOAT_TYPES = ("f16", "bf16", "f32")
MOSTLY = 0.9
"""Share of weights that must have a type of the format; scales and norms stay floats. With int4, embedding and last
layer are 8 bit, so only the floats are limited."""


def build(checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
    """Write what serving reads to `out`; arguments and result are those of EngineMaker.build."""
    config = read_config(checkpoint)
    check_limits(spec, config)
    for file in (MODEL, MODEL.replace(".xml", ".bin")):
        link_file(checkpoint / file, out / file)
    copy_companions(checkpoint, out)
    has_chat_template = convert(checkpoint, out)
    if has_chat_template:
        check_renders(checkpoint, spec)
    precision = read_precision(out)
    check_precision(precision, spec)
    description = {
        "kind": spec.engine.kind,
        "architecture": config["architectures"][0],
        "max_position_embeddings": config.get("max_position_embeddings"),
        "chat_template": has_chat_template,
        "versions": {tool: version(tool) for tool in ("openvino", "openvino-genai", "openvino-tokenizers")},
        "precision": precision,
        "limits": spec.engine.model_dump(include={"max_batch_size", "max_input_tokens", "max_sequence_tokens"}),
        "scheduler": scheduler_settings(spec),
        "properties": properties(spec, precision["kv_cache"]),
    }
    description["proof"] = prove(
        out, description["scheduler"], description["properties"], spec.engine.max_sequence_tokens
    )
    (out / ENGINE_DESCRIPTION).write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
    return description


def scheduler_settings(spec: ReleaseSpec) -> dict[str, Any]:
    """Fields of openvino_genai.SchedulerConfig: room for every sequence at its full length, and no more."""
    engine = spec.engine
    blocks_per_sequence = -(-engine.max_sequence_tokens // KV_BLOCK_TOKENS)
    return {
        "max_num_seqs": engine.max_batch_size,
        "max_num_batched_tokens": max(BATCHED_TOKENS, engine.max_batch_size),
        "num_kv_blocks": engine.max_batch_size * blocks_per_sequence,
        "dynamic_split_fuse": True,
        "enable_prefix_caching": bool(engine.options.get("prefix_caching", False)),
    }


def properties(spec: ReleaseSpec, kv_cache: str) -> dict[str, Any]:
    """Properties of the CPU plugin that serving passes on."""
    threads = spec.engine.options.get("threads")
    return {"KV_CACHE_PRECISION": kv_cache, **({"INFERENCE_NUM_THREADS": threads} if threads else {})}


def read_precision(engine_dir: Path) -> dict[str, Any]:
    """Precision of weights and KV cache, as read from the IR.

    Returns:
        `weights`: share of elements by type over all constants with two dimensions or more; `kv_cache`: the type that
        the IR asks the plugin for.
    """
    import openvino

    model = openvino.Core().read_model(engine_dir / MODEL)
    elements: dict[str, int] = {}
    for constant in (node for node in model.get_ops() if node.get_type_name() == "Constant"):
        kind, shape = constant.get_element_type().get_type_name(), constant.get_output_shape(0)
        size = 1
        for length in shape:
            size *= length
        if len(shape) > 1 and kind in {*FLOAT_TYPES, "u8", "i8", "u4", "i4"}:
            elements[kind] = elements.get(kind, 0) + size
    total = sum(elements.values())
    cache_path = ["runtime_options", "KV_CACHE_PRECISION"]
    return {
        "weights": {kind: round(count / total, 4) for kind, count in sorted(elements.items())},
        "kv_cache": model.get_rt_info(cache_path).astype(str) if model.has_rt_info(cache_path) else "plugin default",
    }


def check_precision(precision: dict[str, Any], spec: ReleaseSpec) -> None:
    """Refuse an engine whose weights or cache are not what the spec asks for.

    Raises:
        InputError: the actual precision, and the expected one.
    """
    shares, requested = precision["weights"], spec.quantization.format
    wanted = sum(shares.get(kind, 0.0) for kind in WEIGHT_TYPES[requested])
    floats = 0.0 if requested == "none" else sum(shares.get(kind, 0.0) for kind in FLOAT_TYPES)
    needed = MOSTLY if requested != "int4" else 0.0
    cache = KV_CACHE_PRECISION[spec.quantization.kv_cache]
    if wanted <= needed or floats > 1 - MOSTLY:
        raise InputError(
            f"the engine's weights are not {requested}: the architecture does not support this format",
            found=", ".join(f"{share:.0%} {kind}" for kind, share in shares.items()) or "no weights",
            remedy="Choose another quantization.format.",
        )
    if precision["kv_cache"] != cache:
        raise InputError(
            "the engine's KV cache is not that of quantization.kv_cache",
            found=precision["kv_cache"],
            expected=cache,
            remedy="Run quantize again.",
        )
