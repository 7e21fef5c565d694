"""Which quantization formats run on which GPU architectures, by engine kind. Each row names its source.

A combination without a row is refused. A new row needs a source, never a guess: what no vendor's page or code confirms
is left out on purpose, even if it would probably run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slipway.tasks.contracts.engine.engine_kinds import EngineKind
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import Quantization

TURING, AMPERE, ADA, HOPPER = ("sm_75",), ("sm_80", "sm_86"), ("sm_89",), ("sm_90",)
DATA_CENTRE_BLACKWELL = ("sm_100", "sm_103")
BLACKWELL = (*DATA_CENTRE_BLACKWELL, "sm_120")
SPARK = ("sm_121",)
PRESENT = (*AMPERE, *ADA, *HOPPER, *BLACKWELL)
"""Architectures that all three runtimes support."""
ARCHITECTURES = (*TURING, *PRESENT, *SPARK)
"""Compute capabilities (developer.nvidia.com/cuda-gpus): T4 7.5; A100 8.0; A10, A10G, A40 8.6; L4, L40S 8.9; H100, H200
9.0; B200 10.0; B300 10.3; RTX PRO 6000 Blackwell 12.0; GB10 (DGX Spark) 12.1."""

SUPPORT_MATRIX = "NVIDIA/TensorRT-LLM docs/source/legacy/reference/support-matrix.md @ 17552a44, Software, Precision"
BUILDER = "NVIDIA/TensorRT-LLM tensorrt_llm/builder.py, build(): no INT8, INT4 and SmoothQuant on SM 100 to 119"
FP8_ACTIVATIONS = f"{SUPPORT_MATRIX}: INT4 AWQ with FP8 activations from SM 89"
QUANTIZATION_PAGE = "NVIDIA/TensorRT-LLM docs/source/features/quantization.md @ 09d4c79b, hardware support matrix, 1.2"
SPARK_BETA = "NVIDIA/TensorRT-LLM docs/source/release-notes.md @ 001eaece, 1.2: DGX Spark support (beta), one node"
SPARK_TRTLLM = f"{SPARK_BETA}; build.nvidia.com/spark/trt-llm, model support matrix, container 1.2.0rc6"
SPARK_VLLM = "NVIDIA/dgx-spark-playbooks nvidia/vllm/README.md of 2026-04-28, model support matrix, and its AWQ example"
LLM_API = (
    "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/model_config.py, load_hf_quant_config and get_mxfp4_quant_algo, and "
    "tensorrt_llm/llmapi/llm_utils.py, _update_from_hf_quant_config, which raises for every other method; near 1.2"
)
PINNED = "at v0.19.0, v0.22.1 and v0.24.0"
QUANTIZATION = "vllm-project/vllm vllm/model_executor/layers/quantization"
VLLM_MODELOPT = f"{QUANTIZATION}/modelopt.py, QUANT_ALGOS and get_min_capability, {PINNED}"
NEWER = "where slipway/tasks/engines/upstream has the algorithm for the version"
VLLM_FP8 = (
    f"{QUANTIZATION}/fp8.py, Fp8Config.get_min_capability 75, {PINNED}; "
    "docs/features/quantization/llm_compressor/fp8.md: weight-only by FP8 Marlin below 8.9"
)
VLLM_NVFP4 = f"{VLLM_MODELOPT} 75; {QUANTIZATION}/utils/marlin_utils_fp4.py, is_fp4_marlin_supported"
VLLM_AWQ = f"{QUANTIZATION}/awq.py and awq_marlin.py, auto_awq.py at v0.24.0, get_min_capability 75, {PINNED}"
VLLM_GPTQ = f"{QUANTIZATION}/gptq_marlin.py at v0.19.0, get_min_capability 75; auto_gptq.py from v0.22.1 on, TYPE_MAP"
VLLM_MXFP4 = f"{QUANTIZATION}/mxfp4.py, get_min_capability 80, {PINNED}"
VLLM_COMPRESSED = (
    f"{QUANTIZATION}/compressed_tensors/compressed_tensors.py, _get_scheme_from_parts, and get_min_capability of "
    f"schemes/, {PINNED}"
)
VLLM_INT8 = "docs.vllm.ai/en/v0.14.0/features/quantization: INT8 (W8A8) from Turing to Hopper"
VLLM_PAGE = "docs.vllm.ai/en/v0.14.0/features/quantization, Supported Hardware"
VLLM_TURING = (
    "vllm-project/vllm vllm/platforms/cuda.py, supported_dtypes (float16 below 8.0), and v1/attention/backends/"
    f"triton_attn.py, supports_compute_capability, {PINNED}"
)
VLLM_ALL = f"{VLLM_PAGE}; {VLLM_TURING}"
VLLM_CACHE = (
    f"{VLLM_MODELOPT}, KV_CACHE_QUANT_ALGOS; vllm/v1/attention/backends/triton_attn.py at v0.24.0: FP8 from 8.9, and "
    "flashinfer.py, to 12.1"
)


@dataclass(frozen=True)
class Row:
    """Architectures that an engine kind runs a format on. It does not run on any other."""

    kind: EngineKind
    format: str
    architectures: tuple[str, ...]
    source: str
    weights_only: tuple[str, ...] = ()
    """Those of them without arithmetic for the format: kernels expand the weights, which saves memory but no time."""


BELOW_FP8, BELOW_FP4 = (*TURING, *AMPERE), (*TURING, *AMPERE, *ADA, *HOPPER)

FORMATS: tuple[Row, ...] = (
    Row("trt-engine", "none", PRESENT, SUPPORT_MATRIX),
    Row("trt-engine", "int8_wo", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("trt-engine", "int4_wo", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("trt-engine", "int8_sq", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("trt-engine", "int4_awq", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("trt-engine", "w4a8_awq", (*ADA, *HOPPER), FP8_ACTIVATIONS),
    Row("trt-engine", "fp8", (*ADA, *HOPPER, *BLACKWELL), SUPPORT_MATRIX),
    Row("trt-engine", "nvfp4", BLACKWELL, SUPPORT_MATRIX),
    Row("llmapi", "none", (*PRESENT, *SPARK), f"{QUANTIZATION_PAGE}; {SPARK_BETA}"),
    Row("llmapi", "int4_awq", (*AMPERE, *ADA, *HOPPER), QUANTIZATION_PAGE),
    Row("llmapi", "w4a8_awq", (*ADA, *HOPPER), QUANTIZATION_PAGE),
    Row("llmapi", "fp8", (*ADA, *HOPPER, *BLACKWELL, *SPARK), f"{QUANTIZATION_PAGE}; {SPARK_TRTLLM}"),
    Row("llmapi", "nvfp4", (*BLACKWELL, *SPARK), f"{QUANTIZATION_PAGE}; {SPARK_TRTLLM}"),
    Row("vllm", "none", ARCHITECTURES, f"{VLLM_ALL}; {SPARK_VLLM}"),
    Row("vllm", "fp8", (*ADA, *HOPPER, *BLACKWELL, *SPARK), f"{VLLM_MODELOPT} 89; {SPARK_VLLM}"),
    Row("vllm", "fp8_online", (*TURING, *PRESENT), f"{VLLM_FP8}; {VLLM_ALL}", BELOW_FP8),
    Row("vllm", "nvfp4", ARCHITECTURES, f"{VLLM_NVFP4}; {VLLM_ALL}; {SPARK_VLLM}", BELOW_FP4),
)
"""Weight formats: for each engine kind, those that a spec may name for it (EngineTraits.formats)."""

AS_IT_IS: tuple[Row, ...] = (
    Row("llmapi", "fp8 in blocks", (*HOPPER, *DATA_CENTRE_BLACKWELL), f"{LLM_API}; {QUANTIZATION_PAGE}"),
    # the page has no MXFP4 for Hopper, but the code's W4A16_MXFP4, and its choice of a kernel for gpt-oss there
    Row("llmapi", "mxfp4", (*HOPPER, *BLACKWELL, *SPARK), f"{LLM_API}; {QUANTIZATION_PAGE}; {SPARK_TRTLLM}", HOPPER),
    Row("vllm", "awq", ARCHITECTURES, f"{VLLM_AWQ}; {VLLM_ALL}; {SPARK_VLLM}"),
    Row("vllm", "gptq", (*TURING, *PRESENT), f"{VLLM_GPTQ}; {VLLM_ALL}"),
    Row("vllm", "fp8 in blocks", (*TURING, *PRESENT), f"{VLLM_FP8}; {VLLM_ALL}", BELOW_FP8),
    Row("vllm", "fp8", (*TURING, *PRESENT), f"{VLLM_FP8}; {VLLM_ALL}", BELOW_FP8),
    Row("vllm", "mxfp4", (*PRESENT, *SPARK), f"{VLLM_MXFP4}; {SPARK_VLLM}", (*AMPERE, *ADA, *HOPPER)),
    Row("vllm", "modelopt FP8_PER_CHANNEL_PER_TOKEN", (*ADA, *HOPPER, *BLACKWELL), f"{VLLM_MODELOPT} 89, {NEWER}"),
    Row("vllm", "modelopt FP8_PB_WO", (*ADA, *HOPPER, *BLACKWELL), f"{VLLM_MODELOPT} 89, {NEWER}"),
    Row("vllm", "modelopt W4A16_NVFP4", PRESENT, f"{VLLM_MODELOPT} 75, {NEWER}", PRESENT),
    Row("vllm", "modelopt MXFP8", PRESENT, f"{VLLM_MODELOPT} 80, {NEWER}", (*AMPERE, *ADA, *HOPPER)),
    Row("vllm", "modelopt MIXED_PRECISION", PRESENT, f"{VLLM_MODELOPT} 75, {NEWER}", (*AMPERE, *ADA, *HOPPER)),
    Row("vllm", "compressed-tensors fp8", (*TURING, *PRESENT), f"{VLLM_COMPRESSED}, 75; {VLLM_ALL}", BELOW_FP8),
    Row("vllm", "compressed-tensors weights", (*TURING, *PRESENT), f"{VLLM_COMPRESSED}, 75; {VLLM_ALL}"),
    Row("vllm", "compressed-tensors int8", (*TURING, *AMPERE, *ADA, *HOPPER), f"{VLLM_COMPRESSED}; {VLLM_INT8}"),
    Row("vllm", "compressed-tensors nvfp4", (*TURING, *PRESENT), f"{VLLM_COMPRESSED}, 75; {VLLM_ALL}", BELOW_FP4),
)
"""Checkpoints that another quantizer than ModelOpt made, which are served with format none: by the names that
slipway/tasks/engines/preflight/source_formats.py gives them."""

KV_CACHES: tuple[Row, ...] = (
    Row("trt-engine", "none", PRESENT, SUPPORT_MATRIX),
    Row("trt-engine", "fp8", (*ADA, *HOPPER, *BLACKWELL), SUPPORT_MATRIX),
    Row("trt-engine", "int8", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("llmapi", "none", (*PRESENT, *SPARK), f"{QUANTIZATION_PAGE}; {SPARK_BETA}"),
    Row("llmapi", "fp8", PRESENT, QUANTIZATION_PAGE),
    Row("vllm", "none", ARCHITECTURES, f"{VLLM_ALL}; {SPARK_VLLM}"),
    Row("vllm", "fp8", (*ADA, *HOPPER, *BLACKWELL, *SPARK), VLLM_CACHE),
)
"""Formats of the KV cache; `none` keeps keys and values in the type that the model computes in."""

MADE_BY_MODELOPT = {"nvfp4": (*ADA, *HOPPER, *BLACKWELL, *SPARK)}
"""GPUs that ModelOpt can quantize on, for a format that needs more than any: NVFP4's Triton kernel needs 8.9; without
it an extension is compiled, for which images have no compiler (modelopt/torch/quantization/tensor_quant.py,
_dynamic_block_quantize_impl, 0.47)."""


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


def modelopt_makes(format_: str, architecture: str) -> bool:
    """Whether ModelOpt can quantize to the format on this architecture."""
    return architecture in MADE_BY_MODELOPT.get(format_, ARCHITECTURES)


def only_weights(value: str, rows: Sequence[Row], kind: EngineKind, architecture: str) -> bool:
    """Whether an engine of this kind keeps weights in the format on this architecture, and computes in 16 bits."""
    return any((row.kind, row.format) == (kind, value) and architecture in row.weights_only for row in rows)


def served(rows: Sequence[Row], kind: EngineKind, architecture: str) -> list[str]:
    """Formats that an engine of this kind serves on this architecture."""
    return [row.format for row in rows if row.kind == kind and architecture in row.architectures]
