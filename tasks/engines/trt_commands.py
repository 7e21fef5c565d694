"""Command lines of TensorRT-LLM 1.2 as lists of words, as tests/contracts records what the tools take. Pure."""

from pathlib import Path

from tasks.contracts.errors import InputError
from tasks.contracts.spec import QuantizationFormat, ReleaseSpec
from tasks.engines.memory import batched_tokens

PYTHON = "python3"
"""What runs TensorRT-LLM's scripts: the image's own interpreter, /usr/bin/python3, where PATH finds it. Not
sys.executable: that is `python` of the steps' own environment, which lies first on PATH, holds no other name
(images/tasks-gpu/Dockerfile) and would put the steps' packages in front of those that the scripts were made for.
"""
BUILD = "trtllm-build"
QUANTIZE_SCRIPT = "quantization/quantize.py"
"""Below the folder of TensorRT-LLM's examples."""

CONVERTERS = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen",
    "Qwen3ForCausalLM": "qwen",
}
"""Folder of convert_checkpoint.py by the architecture in config.json (NVIDIA/TensorRT-LLM examples/models/core,
1.2)."""

FP8_ATTENTION: frozenset[QuantizationFormat] = frozenset({"fp8", "w4a8_awq", "nvfp4"})
"""Formats with which the builder lets the attention of prompts compute in 8 bits (tensorrt_llm/builder.py, build())."""

GEMM_PLUGIN: dict[QuantizationFormat, str] = {"fp8": "disable", "nvfp4": "nvfp4"}
"""Of other formats `auto`: cuBLASLt in the model's own type. TensorRT's own FP8 kernels are the faster ones
(docs/source/legacy/performance/performance-tuning-guide/useful-build-time-flags.md @ 2a9abd95)."""


def quantize_command(
    script: Path, checkpoint: Path, out: Path, spec: ReleaseSpec, *, calibration: Path | None, samples: int
) -> list[str]:
    """quantize.py: from a Hugging Face checkpoint to one of TensorRT-LLM, split over all ranks.

    Args:
        script: of the image.
        checkpoint: in Hugging Face layout.
        out: where config.json and one safetensors file per rank go.
        spec: format, KV cache and parallelism.
        calibration: folder of a data set with a `train` split and a `text` column; None: the format needs none.
        samples: how many texts it holds. AWQ looks at 32 of them at most.
    """
    asked = spec.quantization
    command = [
        *(PYTHON, str(script)),
        *("--model_dir", str(checkpoint)),
        *("--output_dir", str(out)),
        *("--dtype", "auto"),
        *("--qformat", asked.format if asked.format != "none" else "full_prec"),
        *("--tp_size", str(spec.engine.tensor_parallel)),
        *("--pp_size", str(spec.engine.pipeline_parallel)),
    ]
    if asked.kv_cache != "none":
        command += ["--kv_cache_dtype", asked.kv_cache]
    if calibration is not None and asked.calibration is not None:
        length = str(asked.calibration.max_tokens)
        command += ["--calib_dataset", str(calibration), "--calib_size", str(samples)]
        command += ["--calib_max_seq_length", length, "--tokenizer_max_seq_length", length]
    return command


def converter_of(architecture: str) -> str:
    """Path of the script that converts an unquantized checkpoint, below the folder of examples.

    Raises:
        InputError: no script is known for the architecture.
    """
    if architecture not in CONVERTERS:
        raise InputError(
            f"architecture {architecture}: trt-engine converts {', '.join(sorted(CONVERTERS))}. Choose a model of "
            "these, or the engine kinds llmapi or vllm, which load a checkpoint as it is."
        )
    return f"models/core/{CONVERTERS[architecture]}/convert_checkpoint.py"


def convert_command(script: Path, checkpoint: Path, out: Path, spec: ReleaseSpec) -> list[str]:
    """convert_checkpoint.py: as quantize_command, of a model that keeps its precision."""
    return [
        *(PYTHON, str(script)),
        *("--model_dir", str(checkpoint)),
        *("--output_dir", str(out)),
        *("--dtype", "auto"),
        *("--tp_size", str(spec.engine.tensor_parallel)),
        *("--pp_size", str(spec.engine.pipeline_parallel)),
    ]


def build_command(checkpoint: Path, out: Path, spec: ReleaseSpec, *, timing_cache: Path, workers: int) -> list[str]:
    """trtllm-build: one engine per rank of the checkpoint, whose config.json holds parallelism, type and format.

    Several profiles and paged attention are what TensorRT-LLM's own benchmark builds with (trtllm-bench build, 1.2).
    What the builder would switch off by itself is switched off here, so that the command says what the engine is.

    Args:
        checkpoint: of TensorRT-LLM.
        out: where config.json and one engine per rank go.
        spec: limits, format and KV cache.
        timing_cache: file for what the builder measured; its default lies in the working folder, which is read-only.
        workers: ranks built at once, each on a GPU of its own.
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
        *("--max_num_tokens", str(batched_tokens(spec))),
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
    ]


def paged_attention(spec: ReleaseSpec) -> bool:
    """Whether prompts attend to a paged cache, without which none of it can be shared between requests.

    Not with a cache of 8-bit integers, and with one of 8-bit floats only where the weights are of that workflow too
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
