"""What an engine says it is, compared with what was asked: TensorRT-LLM's own config.json and one file per rank."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.spec import QuantizationFormat, ReleaseSpec
from tasks.engines.memory import batched_tokens
from tasks.engines.trt_commands import paged_attention

CONFIG = "config.json"
QUANT_ALGO: dict[QuantizationFormat, str | None] = {
    "none": None,
    "int8_wo": "W8A16",
    "int4_wo": "W4A16",
    "int8_sq": "W8A8_SQ_PER_CHANNEL",
    "int4_awq": "W4A16_AWQ",
    "w4a8_awq": "W4A8_AWQ",
    "fp8": "FP8",
    "nvfp4": "NVFP4",
}
"""Names of tensorrt_llm/quantization/mode.py, QuantAlgo, by the user's format."""

KV_QUANT_ALGO = {"none": None, "fp8": "FP8", "int8": "INT8"}


def read_engine(engine_dir: Path, spec: ReleaseSpec, *, version: str, gpus_per_node: int) -> dict[str, Any]:
    """Read the engine back and compare it with what was asked.

    Args:
        engine_dir: what trtllm-build wrote.
        spec: what was asked.
        version: of TensorRT-LLM in the serving image.
        gpus_per_node: how many ranks share a node.

    Returns:
        `versions`, `architecture`, `dtype`, `mapping`, `limits`, `quantization`, `paged_attention`.

    Raises:
        InputError: the field that differs, what was found and what was expected; or a rank's file is missing.
    """
    config = _read(engine_dir)
    for field, expected in _expected(spec, version, gpus_per_node):
        found = _at(config, field)
        if found != expected:
            raise InputError(
                f"engine {CONFIG}: {field} is {found!r}, expected {expected!r} as the spec asks. The engine is not "
                "the one that was asked for; run build again, and if it stays so, the image's TensorRT-LLM is another."
            )
    _check_ranks(engine_dir, spec)
    pretrained, build = config["pretrained_config"], config["build_config"]
    return {
        "versions": {"tensorrt_llm": config["version"]},
        "architecture": pretrained.get("architecture"),
        "dtype": pretrained.get("dtype"),
        "mapping": {
            name: pretrained["mapping"][name] for name in ("world_size", "tp_size", "pp_size", "gpus_per_node")
        },
        "limits": {
            "max_batch_size": build["max_batch_size"],
            "max_input_tokens": build["max_input_len"],
            "max_sequence_tokens": build["max_seq_len"],
            "max_num_tokens": build["max_num_tokens"],
            "max_beam_width": build["max_beam_width"],
        },
        "quantization": {name: _at(config, f"pretrained_config.quantization.{name}") for name in ALGOS},
        "paged_attention": _at(config, "build_config.plugin_config.use_paged_context_fmha"),
    }


ALGOS = ("quant_algo", "kv_cache_quant_algo")


def _expected(spec: ReleaseSpec, version: str, gpus_per_node: int) -> Iterator[tuple[str, Any]]:
    engine, asked = spec.engine, spec.quantization
    tensor, pipeline = engine.tensor_parallel, engine.pipeline_parallel
    yield "version", version
    yield "pretrained_config.mapping.world_size", tensor * pipeline
    yield "pretrained_config.mapping.tp_size", tensor
    yield "pretrained_config.mapping.pp_size", pipeline
    yield "pretrained_config.mapping.gpus_per_node", gpus_per_node
    yield "pretrained_config.quantization.quant_algo", QUANT_ALGO[asked.format]
    yield "pretrained_config.quantization.kv_cache_quant_algo", KV_QUANT_ALGO[asked.kv_cache]
    yield "build_config.max_batch_size", engine.max_batch_size
    yield "build_config.max_input_len", engine.max_input_tokens
    yield "build_config.max_seq_len", engine.max_sequence_tokens
    yield "build_config.max_num_tokens", batched_tokens(spec)
    yield "build_config.max_beam_width", 1
    yield "build_config.plugin_config.use_paged_context_fmha", paged_attention(spec)


def _check_ranks(engine_dir: Path, spec: ReleaseSpec) -> None:
    ranks = spec.engine.tensor_parallel * spec.engine.pipeline_parallel
    wanted = {f"rank{number}.engine" for number in range(ranks)}
    found = {file.name for file in engine_dir.glob("rank*.engine") if file.stat().st_size}
    if found != wanted:
        missing, extra = sorted(wanted - found), sorted(found - wanted)
        detail = f"missing or empty: {', '.join(missing)}" if missing else f"too many: {', '.join(extra)}"
        raise InputError(
            f"the engine has {len(found)} rank files, expected {ranks} for tensor_parallel "
            f"{spec.engine.tensor_parallel} x pipeline_parallel {spec.engine.pipeline_parallel}; {detail}. Run build "
            "again."
        )


def _read(engine_dir: Path) -> dict[str, Any]:
    file = engine_dir / CONFIG
    try:
        config = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"the engine has no {CONFIG}; trtllm-build writes one beside its rank files.") from error
    except ValueError as error:
        raise InputError(f"the engine's {CONFIG} is no JSON: {error}. Run build again.") from error
    return dict(config)


def _at(config: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path; None where a part is absent, for TensorRT-LLM leaves out what is null."""
    value: Any = config
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
