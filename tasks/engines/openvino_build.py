"""From compressed OpenVINO IR to an engine that is known to load and to generate."""

import json
import logging
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.spec import ReleaseSpec
from tasks.engines.checkpoint import check_limits, copy_companions, read_config
from tasks.engines.openvino import KV_CACHE_PRECISION, MODEL
from tasks.engines.protocol import ENGINE_DESCRIPTION

log = logging.getLogger(__name__)

KV_BLOCK_TOKENS = 32
"""Tokens of one block of the paged KV cache on CPU (OpenVINO GenAI 2026.4, continuous batching)."""

BATCHED_TOKENS = 256
"""Prompt and answer tokens of one scheduler step; long prompts are split so that running answers go on (GenAI's own
default)."""

WEIGHT_TYPES: dict[str, tuple[str, ...]] = {"none": ("f16",), "int8": ("u8", "i8"), "int4": ("u4", "i4")}
FLOAT_TYPES = ("f16", "bf16", "f32")
MOSTLY = 0.9
"""Share of weights that must have an asked type; scales and norms stay floats. Of int4, embedding and last layer are
8 bit, so that there only the floats are limited."""

PROOF_PROMPT = "1"


def build(checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
    """See Engine.build."""
    config = read_config(checkpoint)
    check_limits(config, spec)
    for file in (MODEL, MODEL.replace(".xml", ".bin")):
        _link(checkpoint / file, out / file)
    copy_companions(checkpoint, out)
    has_chat_template = _convert_tokenizer(checkpoint, out)
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
    description["proof"] = _prove(out, description)
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
    """What the IR itself says.

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
    asked_cache = ["runtime_options", "KV_CACHE_PRECISION"]
    return {
        "weights": {kind: round(count / total, 4) for kind, count in sorted(elements.items())},
        "kv_cache": model.get_rt_info(asked_cache).astype(str) if model.has_rt_info(asked_cache) else "plugin default",
    }


def check_precision(precision: dict[str, Any], spec: ReleaseSpec) -> None:
    """Refuse an engine whose weights or cache are not what the spec asks for.

    Raises:
        InputError: what was found and what was asked.
    """
    shares, asked = precision["weights"], spec.quantization.format
    wanted = sum(shares.get(kind, 0.0) for kind in WEIGHT_TYPES[asked])
    floats = 0.0 if asked == "none" else sum(shares.get(kind, 0.0) for kind in FLOAT_TYPES)
    needed = MOSTLY if asked != "int4" else 0.0
    cache = KV_CACHE_PRECISION[spec.quantization.kv_cache]
    if wanted <= needed or floats > 1 - MOSTLY:
        raise InputError(
            f"the engine's weights are {_in_words(shares)}, asked was {asked}. The architecture resists this format; "
            "choose another quantization.format."
        )
    if precision["kv_cache"] != cache:
        raise InputError(
            f"the engine's KV cache is {precision['kv_cache']}, quantization.kv_cache {spec.quantization.kv_cache} is "
            f"{cache}. Run quantize again."
        )


def _in_words(shares: dict[str, float]) -> str:
    return ", ".join(f"{share:.0%} {kind}" for kind, share in shares.items())


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def _convert_tokenizer(checkpoint: Path, out: Path) -> bool:
    """Write both directions as IR; whether the tokenizer has a chat template."""
    import openvino
    from openvino_tokenizers import convert_tokenizer
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)
        encode, decode = convert_tokenizer(tokenizer, with_detokenizer=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputError(
            f"openvino-tokenizers {version('openvino-tokenizers')} cannot convert the tokenizer: "
            f"{str(error)[:160]}. Choose a model with a fast tokenizer."
        ) from error
    openvino.save_model(encode, out / "openvino_tokenizer.xml")
    openvino.save_model(decode, out / "openvino_detokenizer.xml")
    return bool(tokenizer.chat_template)


def _prove(engine_dir: Path, description: dict[str, Any]) -> dict[str, Any]:
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    for name, value in description["scheduler"].items():
        setattr(scheduler, name, value)
    config = genai.GenerationConfig()
    config.max_new_tokens = 1
    try:
        pipeline = genai.ContinuousBatchingPipeline(str(engine_dir), scheduler, "CPU", description["properties"])
        answer = pipeline.generate([PROOF_PROMPT], [config])[0]
    except RuntimeError as error:
        raise InputError(
            f"openvino-genai {version('openvino-genai')} cannot run the engine: {str(error)[:200]}. "
            "Choose an architecture that it supports."
        ) from error
    if answer.m_status != genai.GenerationStatus.FINISHED:
        raise InputError(f"the engine generated no token: status {answer.m_status.name}, expected FINISHED.")
    return {"prompt": PROOF_PROMPT, "text": answer.m_generation_ids[0]}
