"""Command lines of TensorRT-LLM 1.2's tools, whose arguments tests/contracts records. Pure."""

from dataclasses import dataclass
from pathlib import Path

from slipway.tasks.contracts.engine.engine_kinds import QuantizationFormat
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.preflight.memory_fit import batched_tokens
from slipway.tasks.engines.trtllm.families import Converter

PYTHON = "python3"
"""The interpreter of TensorRT-LLM's scripts: the image's own, /usr/bin/python3, found on PATH. Not sys.executable: that
is `python` of the steps' own environment, which is first on PATH, has it under no other name
(images/tasks-gpu/Dockerfile) and would put the steps' packages before those that the scripts were made for.
"""
BUILD = "trtllm-build"
QUANTIZE_SCRIPT = "quantization/quantize.py"
"""Below the folder of TensorRT-LLM's examples."""
LORA_SCRIPT = "hf_lora_convert.py"
VOCABULARY_SCRIPT = "generate_xgrammar_tokenizer_info.py"

FP8_ATTENTION: frozenset[QuantizationFormat] = frozenset({"fp8", "w4a8_awq", "nvfp4"})
"""Formats with which the builder lets the attention of prompts compute in 8 bits (tensorrt_llm/builder.py, build())."""

GEMM_PLUGIN: dict[QuantizationFormat, str] = {"fp8": "disable", "nvfp4": "nvfp4"}
"""Other formats use `auto`: cuBLASLt in the model's own type. TensorRT's own FP8 kernels are faster
(docs/source/legacy/performance/performance-tuning-guide/useful-build-time-flags.md @ 2a9abd95)."""

SAVED_TYPE = {"float32": "float16"}
"""Type that weights are converted to, where it is not their own: as with `--dtype auto` (infer_dtype in
tensorrt_llm/models/convert_utils.py)."""

TOKENS_PER_BLOCK = 32
"""Tokens in a block of the paged cache: trtllm-build's default (tests/contracts/trtllm_build.yaml)."""


@dataclass(frozen=True)
class EngineLora:
    """What an engine has room for: TensorRT-LLM's names of the layers that adapters change, and their highest rank."""

    modules: tuple[str, ...]
    max_rank: int


def quantize_command(
    script: Path, checkpoint: Path, out: Path, spec: ReleaseSpec, *, calibration: Path | None, samples: int
) -> list[str]:
    """Command of quantize.py: from a Hugging Face checkpoint to TensorRT-LLM's, split over all ranks.

    Args:
        script: quantize.py in the image.
        checkpoint: in Hugging Face layout.
        out: where config.json and one safetensors file per rank go.
        spec: format, KV cache and parallelism.
        calibration: folder of a dataset with a `train` split and a `text` column; None if the format needs none.
        samples: how many texts it holds. AWQ uses 32 of them at most.
    """
    quantization = spec.quantization
    command = [
        *(PYTHON, str(script)),
        *("--model_dir", str(checkpoint)),
        *("--output_dir", str(out)),
        *("--dtype", "auto"),
        *("--qformat", quantization.format if quantization.format != "none" else "full_prec"),
        *("--tp_size", str(spec.engine.tensor_parallel)),
        *("--pp_size", str(spec.engine.pipeline_parallel)),
    ]
    if quantization.kv_cache != "none":
        command += ["--kv_cache_dtype", quantization.kv_cache]
    if calibration is not None and quantization.calibration is not None:
        length = str(quantization.calibration.max_tokens)
        command += ["--calib_dataset", str(calibration), "--calib_size", str(samples)]
        command += ["--calib_max_seq_length", length, "--tokenizer_max_seq_length", length]
    return command


def is_converted(spec: ReleaseSpec) -> bool:
    """Whether weights and cache keep their precision, so that the checkpoint is converted and not quantized."""
    return not spec.changes_weights


def convert_command(
    converter: Converter, script: Path, checkpoint: Path, out: Path, spec: ReleaseSpec, *, dtype: str
) -> list[str]:
    """Command of convert_checkpoint.py: as quantize_command, for a model that keeps its precision.

    Args:
        converter: what is special about the script.
        script: the script in the image.
        checkpoint: in Hugging Face layout.
        out: where config.json and one safetensors file per rank go.
        spec: parallelism, which the script can split weights and experts into (check_converted).
        dtype: type of the weights in config.json, for a script that does not read it.
    """
    engine = spec.engine
    command = [
        *(PYTHON, str(script)),
        *("--model_dir", str(checkpoint)),
        *("--output_dir", str(out)),
        *("--dtype", "auto" if converter.reads_dtype else SAVED_TYPE.get(dtype, dtype)),
        *(converter.tensor_flag, str(engine.tensor_parallel)),
        *(("--pp_size", str(engine.pipeline_parallel)) if converter.pipeline else ()),
        *converter.flags,
    ]
    if engine.expert_parallel > 1:
        command += ["--moe_tp_size", str(engine.tensor_parallel // engine.expert_parallel)]
        command += ["--moe_ep_size", str(engine.expert_parallel)]
    return command


def lora_command(script: Path, adapter: Path, out: Path, dtype: str) -> list[str]:
    """Command of hf_lora_convert.py: from an adapter as PEFT saves it to inputs of TensorRT-LLM's Triton backend.

    Args:
        script: hf_lora_convert.py in the image.
        adapter: folder of the adapter.
        out: where the two arrays go.
        dtype: type of the model, as its TensorRT-LLM checkpoint names it.
    """
    return [PYTHON, str(script), "--in-file", str(adapter), "--out-dir", str(out), "--storage-type", dtype]


def vocabulary_command(script: Path, tokenizer: Path, out: Path) -> list[str]:
    """Command of generate_xgrammar_tokenizer_info.py: from a tokenizer to what guided decoding needs of it.

    Args:
        script: the script in the image.
        tokenizer: folder of a Hugging Face tokenizer.
        out: folder that the file goes to.
    """
    return [PYTHON, str(script), "--model_dir", str(tokenizer), "--output_dir", str(out)]


def build_command(
    checkpoint: Path,
    out: Path,
    spec: ReleaseSpec,
    *,
    timing_cache: Path,
    workers: int,
    lora: EngineLora | None = None,
) -> list[str]:
    """Command of trtllm-build: one engine per rank; the checkpoint's config.json holds parallelism, type and format.

    Several profiles and paged attention are what TensorRT-LLM's own benchmark builds with (trtllm-bench build, 1.2).
    What the builder would switch off by itself is switched off here, so that the command says what the engine is.

    Args:
        checkpoint: in TensorRT-LLM's layout.
        out: where config.json and one engine per rank go.
        spec: limits, format and KV cache.
        timing_cache: file for the builder's measurements; the default is in the working folder, which is read-only.
        workers: ranks built at once, each on a GPU of its own.
        lora: what requests may choose adapters for; None without adapters.
    """
    engine, paged = spec.engine, paged_attention(spec)
    fp8_attention = paged and spec.quantization.kv_cache == "fp8"
    return [
        BUILD,
        *("--checkpoint_dir", str(checkpoint)),
        *("--output_dir", str(out)),
        *("--max_batch_size", str(engine.max_batch_size)),
        *("--max_input_len", str(engine.max_input_tokens)),
        *("--max_seq_len", str(engine.max_sequence_tokens)),
        *("--max_num_tokens", str(step_tokens(spec))),
        *("--max_beam_width", "1"),
        *("--kv_cache_type", "paged"),
        *("--gemm_plugin", GEMM_PLUGIN.get(spec.quantization.format, "auto")),
        *("--remove_input_padding", "enable"),
        *("--context_fmha", "enable"),
        *("--use_paged_context_fmha", _switch(paged)),
        *("--use_fp8_context_fmha", _switch(fp8_attention)),
        *("--multiple_profiles", "enable"),
        *("--workers", str(workers)),
        *("--output_timing_cache", str(timing_cache)),
        *(lora_flags(lora) if lora else ()),
    ]


def lora_flags(lora: EngineLora) -> list[str]:
    """Flags of trtllm-build that leave room for adapters; their weights come with requests, in the model's own type."""
    return ["--lora_plugin", "auto", "--max_lora_rank", str(lora.max_rank), "--lora_target_modules", *lora.modules]


def step_tokens(spec: ReleaseSpec) -> int:
    """Maximum tokens of one engine step, as the builder would correct the number.

    The builder lowers it to what a full batch of the longest sequences holds, then raises it to one block of the cache
    (tensorrt_llm/_common.py, check_max_num_tokens, at 73c0d691 and 0fccc5b9; builder.py calls it with context_fmha on).
    """
    engine = spec.engine
    tokens = min(batched_tokens(spec), engine.max_sequence_tokens * engine.max_batch_size)
    return max(tokens, TOKENS_PER_BLOCK)


def paged_attention(spec: ReleaseSpec) -> bool:
    """Whether prompts attend to a paged cache, without which none of it can be shared between requests.

    Not with a cache of 8-bit integers, and with one of 8-bit floats only where the weights use that workflow too
    (tensorrt_llm/builder.py, build()).
    """
    match spec.quantization.kv_cache:
        case "none":
            return True
        case "fp8":
            return spec.quantization.format in FP8_ATTENTION
        case "int8":
            return False


def _switch(on: bool) -> str:
    return "enable" if on else "disable"
