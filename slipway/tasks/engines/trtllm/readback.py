"""Compares a built engine with the spec: TensorRT-LLM's own config.json, and one file per rank."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.config_reading import reading
from slipway.tasks.engines.checkpoint.quant_algo import KV_QUANT_ALGO, QUANT_ALGO
from slipway.tasks.engines.trtllm.commands import EngineLora, paged_attention, step_tokens

CONFIG = "config.json"


def read_engine(
    engine_dir: Path, spec: ReleaseSpec, *, version: str, gpus_per_node: int, lora: EngineLora | None = None
) -> dict[str, Any]:
    """Read the engine back and compare it with the spec.

    Args:
        engine_dir: what trtllm-build wrote.
        spec: the release's spec.
        version: TensorRT-LLM's in the serving image.
        gpus_per_node: GPUs of a serving pod, which its ranks or the ids in serving.gpus reach.
        lora: what the engine has room for; None without adapters.

    Returns:
        `versions`, `architecture`, `dtype`, `mapping`, `limits`, `quantization`, `paged_attention`.

    Raises:
        InputError: the field that differs, with both values; or a rank's file is missing.
    """
    config = _read(engine_dir)
    for field, expected in (*_expected(spec, version, gpus_per_node), *_expected_of_adapters(lora)):
        actual = _at(config, field)
        if actual != expected:
            raise InputError(
                f"engine {CONFIG}: {field} differs from the spec",
                found=repr(actual),
                expected=repr(expected),
                remedy="Run build again; if that does not help, the image holds another TensorRT-LLM.",
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


def check_positions(source: Mapping[str, Any], folder: Path) -> None:
    """Compare the rotary positions of a TensorRT-LLM checkpoint with those of its source.

    Args:
        source: config.json of the source.
        folder: what quantize.py or convert_checkpoint.py wrote; it may leave out a base that is the default.

    Raises:
        InputError: another base, or another factor of the scaling.
    """
    read, written = reading(source, 5), _read(folder)
    for field, expected in (
        ("rotary_base", read.get("rope.rope_theta")),
        ("rotary_scaling.factor", read.get("rope.factor")),
    ):
        actual = _at(written, field)
        if expected is not None and actual is not None and actual != expected:
            raise InputError(
                f"TensorRT-LLM checkpoint {CONFIG}: {field} differs from the source, whose positions were not read",
                found=repr(actual),
                expected=repr(expected),
                remedy="Choose a revision whose config.json has rope_theta and rope_scaling.",
            )
    if read.get("rope.factor") is not None and "rotary_scaling" in written and written["rotary_scaling"] is None:
        raise InputError(
            f"TensorRT-LLM checkpoint {CONFIG}: rotary_scaling differs from the source",
            found="null",
            expected=f"{read['rope.rope_type']} by {read['rope.factor']!r}",
            remedy="Choose a revision whose config.json has rope_scaling.",
        )


ALGOS = ("quant_algo", "kv_cache_quant_algo")


def _expected(spec: ReleaseSpec, version: str, gpus_per_node: int) -> Iterator[tuple[str, Any]]:
    engine, quantization = spec.engine, spec.quantization
    yield "version", version
    yield "pretrained_config.mapping.world_size", engine.ranks
    yield "pretrained_config.mapping.tp_size", engine.tensor_parallel
    yield "pretrained_config.mapping.pp_size", engine.pipeline_parallel
    if engine.expert_parallel > 1:
        yield "pretrained_config.mapping.moe_ep_size", engine.expert_parallel
        yield "pretrained_config.mapping.moe_tp_size", engine.tensor_parallel // engine.expert_parallel
    yield "pretrained_config.mapping.gpus_per_node", gpus_per_node
    yield "pretrained_config.quantization.quant_algo", QUANT_ALGO[quantization.format]
    yield "pretrained_config.quantization.kv_cache_quant_algo", KV_QUANT_ALGO[quantization.kv_cache]
    yield "build_config.max_batch_size", engine.max_batch_size
    yield "build_config.max_input_len", engine.max_input_tokens
    yield "build_config.max_seq_len", engine.max_sequence_tokens
    yield "build_config.max_num_tokens", step_tokens(spec)
    yield "build_config.max_beam_width", 1
    yield "build_config.plugin_config.use_paged_context_fmha", paged_attention(spec)


def _expected_of_adapters(lora: EngineLora | None) -> Iterator[tuple[str, Any]]:
    if lora is not None:
        yield "build_config.lora_config.max_lora_rank", lora.max_rank
        yield "build_config.lora_config.lora_target_modules", list(lora.modules)


def _check_ranks(engine_dir: Path, spec: ReleaseSpec) -> None:
    ranks = spec.engine.ranks
    wanted = {f"rank{number}.engine" for number in range(ranks)}
    files = {file.name for file in engine_dir.glob("rank*.engine") if file.stat().st_size}
    if files != wanted:
        missing, extra = sorted(wanted - files), sorted(files - wanted)
        detail = f"missing or empty: {', '.join(missing)}" if missing else f"too many: {', '.join(extra)}"
        raise InputError(
            "the engine does not have one file per rank",
            found=f"{len(files)} files, {detail}",
            expected=f"{ranks} for tensor_parallel {spec.engine.tensor_parallel} x pipeline_parallel "
            f"{spec.engine.pipeline_parallel}",
            remedy="Run build again.",
        )


def _read(engine_dir: Path) -> dict[str, Any]:
    file = engine_dir / CONFIG
    try:
        config = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"the engine has no {CONFIG} beside its rank files", remedy="Run build again.") from error
    except ValueError as error:
        raise InputError(f"the engine's {CONFIG} is not valid JSON", found=error, remedy="Run build again.") from error
    return dict(config)


def _at(config: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path; None where a part is absent, because TensorRT-LLM leaves out nulls."""
    value: Any = config
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
