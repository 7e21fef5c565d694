"""Which quantization formats run on which GPU architectures, by engine kind. Each row names its source.

A combination without a row is refused. A new row needs a source, never a guess: what no vendor's page or code confirms
is left out on purpose, even if it would probably run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.contracts.engine_kinds import EngineKind
from tasks.contracts.errors import InputError
from tasks.contracts.spec import Quantization

AMPERE, ADA, HOPPER = ("sm_80", "sm_86"), ("sm_89",), ("sm_90",)
BLACKWELL = ("sm_100", "sm_103", "sm_120")
ARCHITECTURES = (*AMPERE, *ADA, *HOPPER, *BLACKWELL)
"""Compute capabilities (developer.nvidia.com/cuda-gpus): A100 8.0; A10, A10G, A40 8.6; L4, L40S 8.9; H100, H200 9.0;
B200 10.0; B300 10.3; RTX PRO 6000 Blackwell 12.0."""

SUPPORT_MATRIX = "NVIDIA/TensorRT-LLM docs/source/legacy/reference/support-matrix.md @ 17552a44, Software, Precision"
BUILDER = "NVIDIA/TensorRT-LLM tensorrt_llm/builder.py, build(): no INT8, INT4 and SmoothQuant on SM 100 to 119"
FP8_ACTIVATIONS = f"{SUPPORT_MATRIX}: INT4 AWQ with FP8 activations from SM 89"
QUANTIZATION_PAGE = "NVIDIA/TensorRT-LLM docs/source/features/quantization.md, hardware support matrix, 1.2"
VLLM_MODELOPT = (
    "vllm-project/vllm vllm/model_executor/layers/quantization/modelopt.py, QUANT_ALGOS and get_min_capability, "
    "at v0.19.0 and v0.24.0"
)
VLLM_PAGE = "docs.vllm.ai/en/v0.14.0/features/quantization, Supported Hardware"


@dataclass(frozen=True)
class Row:
    """Architectures that an engine kind runs a format on. It does not run on any other."""

    kind: EngineKind
    format: str
    architectures: tuple[str, ...]
    source: str


FORMATS: tuple[Row, ...] = (
    Row("trt-engine", "none", ARCHITECTURES, SUPPORT_MATRIX),
    Row("trt-engine", "int8_wo", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("trt-engine", "int4_wo", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("trt-engine", "int8_sq", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("trt-engine", "int4_awq", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("trt-engine", "w4a8_awq", (*ADA, *HOPPER), FP8_ACTIVATIONS),
    Row("trt-engine", "fp8", (*ADA, *HOPPER, *BLACKWELL), SUPPORT_MATRIX),
    Row("trt-engine", "nvfp4", BLACKWELL, SUPPORT_MATRIX),
    Row("llmapi", "none", ARCHITECTURES, QUANTIZATION_PAGE),
    Row("llmapi", "int4_awq", (*AMPERE, *ADA, *HOPPER), QUANTIZATION_PAGE),
    Row("llmapi", "w4a8_awq", (*ADA, *HOPPER), QUANTIZATION_PAGE),
    Row("llmapi", "fp8", (*ADA, *HOPPER, *BLACKWELL), QUANTIZATION_PAGE),
    Row("llmapi", "nvfp4", BLACKWELL, QUANTIZATION_PAGE),
    Row("vllm", "none", ARCHITECTURES, VLLM_PAGE),
    Row("vllm", "fp8", (*ADA, *HOPPER, *BLACKWELL), VLLM_MODELOPT),
    Row("vllm", "nvfp4", BLACKWELL, VLLM_MODELOPT),
)
"""Weight formats: for each engine kind, those that a spec may name for it (EngineTraits.formats)."""

KV_CACHES: tuple[Row, ...] = (
    Row("trt-engine", "none", ARCHITECTURES, SUPPORT_MATRIX),
    Row("trt-engine", "fp8", (*ADA, *HOPPER, *BLACKWELL), SUPPORT_MATRIX),
    Row("trt-engine", "int8", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("llmapi", "none", ARCHITECTURES, QUANTIZATION_PAGE),
    Row("llmapi", "fp8", ARCHITECTURES, QUANTIZATION_PAGE),
    Row("vllm", "none", ARCHITECTURES, VLLM_PAGE),
    Row("vllm", "fp8", (*ADA, *HOPPER, *BLACKWELL), f"{VLLM_MODELOPT}, KV_CACHE_QUANT_ALGOS"),
)
"""Formats of the KV cache; `none` keeps keys and values in the type that the model computes in."""


def check_format(kind: EngineKind, quantization: Quantization, product: str, architecture: str) -> None:
    """Refuse a weight or KV cache format that the GPU cannot compute in.

    Args:
        kind: the engine's kind.
        quantization: the spec's section.
        product: the GPU as its node label names it, for the message.
        architecture: its compute capability, e.g. `sm_89`.

    Raises:
        InputError: the GPU does not run the format. Names the formats that it runs, and GPUs that run this one.
    """
    requested: tuple[tuple[str, str, Sequence[Row]], ...] = (
        ("quantization.format", quantization.format, FORMATS),
        ("quantization.kv_cache", quantization.kv_cache, KV_CACHES),
    )
    for field, value, rows in requested:
        check_served(field, value, rows, kind, product, architecture)


def check_served(
    field: str, value: str, rows: Sequence[Row], kind: EngineKind, product: str, architecture: str
) -> None:
    """Refuse one format of `rows` that the GPU cannot compute in; messages name it `field`.

    Raises:
        InputError: as check_format.
    """
    architectures = {row.format: row.architectures for row in rows if row.kind == kind}
    if architecture in architectures.get(value, ()):
        return
    others = served(rows, kind, architecture)
    needs = f", or a GPU with {' or '.join(architectures[value])}" if value in architectures else ""
    raise InputError(
        f"{field} {value} does not run on {product} ({architecture}) with {kind}",
        expected=f"one of {', '.join(others)}" if others else f"a GPU that {kind} is known to run on",
        remedy=f"Choose one of these formats{needs}." if others else f"Choose another GPU{needs}.",
    )


def served(rows: Sequence[Row], kind: EngineKind, architecture: str) -> list[str]:
    """Formats that an engine of this kind serves on this architecture."""
    return [row.format for row in rows if row.kind == kind and architecture in row.architectures]
