"""What runs on what: formats on GPU architectures, engines on images, images on drivers. Each row has its source.

A combination that no row states is refused: this table grows by a row with a source, never by a guess. What could not
be read in a vendor's page or code, but would run by all that is known, is left out on purpose.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.contracts.errors import InputError
from tasks.contracts.release import Step
from tasks.contracts.site import Gpu
from tasks.contracts.spec import EngineKind, Quantization, ReleaseSpec

Flavour = Literal["trtllm", "vllm"]
KvCache = Literal["none", "fp8", "int8"]

AMPERE, ADA, HOPPER = ("sm_80", "sm_86"), ("sm_89",), ("sm_90",)
BLACKWELL = ("sm_100", "sm_103", "sm_120")
ARCHITECTURES = (*AMPERE, *ADA, *HOPPER, *BLACKWELL)
"""Compute capabilities (developer.nvidia.com/cuda-gpus): A100 8.0; A10, A10G, A40 8.6; L4, L40S 8.9; H100, H200 9.0;
B200 10.0; B300 10.3; RTX PRO 6000 Blackwell 12.0."""

SUPPORT_MATRIX = "NVIDIA/TensorRT-LLM docs/source/legacy/reference/support-matrix.md @ 17552a44, Software, Precision"
BUILDER = "NVIDIA/TensorRT-LLM tensorrt_llm/builder.py, build(): no INT8, INT4 and SmoothQuant on SM 100 to 119"
FP8_ACTIVATIONS = f"{SUPPORT_MATRIX}: INT4 AWQ with FP8 activations from SM 89"
QUANTIZATION_PAGE = "NVIDIA/TensorRT-LLM docs/source/features/quantization.md, hardware support matrix, 1.2"
WEIGHT_ONLY = (
    "NVIDIA/TensorRT-LLM tensorrt_llm/_torch/modules/linear.py, WeightOnlyQuantLinearMethod (pull request 7732)"
)
VLLM_MODELOPT = (
    "vllm-project/vllm vllm/model_executor/layers/quantization/modelopt.py, QUANT_ALGOS and get_min_capability, "
    "at v0.19.0 and v0.24.0"
)
VLLM_PAGE = "docs.vllm.ai/en/v0.14.0/features/quantization, Supported Hardware"


@dataclass(frozen=True)
class Row:
    """Where a format runs in an engine. Every architecture it does not name is a no."""

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
    Row("llmapi", "int8_wo", (*AMPERE, *ADA, *HOPPER), WEIGHT_ONLY),
    Row("llmapi", "int4_awq", (*AMPERE, *ADA, *HOPPER), QUANTIZATION_PAGE),
    Row("llmapi", "w4a8_awq", (*ADA, *HOPPER), QUANTIZATION_PAGE),
    Row("llmapi", "fp8", (*ADA, *HOPPER, *BLACKWELL), QUANTIZATION_PAGE),
    Row("llmapi", "nvfp4", BLACKWELL, QUANTIZATION_PAGE),
    Row("vllm", "none", ARCHITECTURES, VLLM_PAGE),
    Row("vllm", "fp8", (*ADA, *HOPPER, *BLACKWELL), VLLM_MODELOPT),
    Row("vllm", "nvfp4", BLACKWELL, VLLM_MODELOPT),
)
"""Weights. The formats of an engine kind are also those that a spec may name for it."""

KV_CACHES: tuple[Row, ...] = (
    Row("trt-engine", "none", ARCHITECTURES, SUPPORT_MATRIX),
    Row("trt-engine", "fp8", (*ADA, *HOPPER, *BLACKWELL), SUPPORT_MATRIX),
    Row("trt-engine", "int8", (*AMPERE, *ADA, *HOPPER), f"{SUPPORT_MATRIX}; {BUILDER}"),
    Row("llmapi", "none", ARCHITECTURES, QUANTIZATION_PAGE),
    Row("llmapi", "fp8", ARCHITECTURES, QUANTIZATION_PAGE),
    Row("vllm", "none", ARCHITECTURES, VLLM_PAGE),
    Row("vllm", "fp8", (*ADA, *HOPPER, *BLACKWELL), f"{VLLM_MODELOPT}, KV_CACHE_QUANT_ALGOS"),
)
"""Keys and values of the attention; `none` keeps them as the model computes them."""


def check_format(kind: EngineKind, quantization: Quantization, product: str, architecture: str) -> None:
    """Refuse a format of weights or KV cache that the GPU has no arithmetic for.

    Args:
        kind: of the engine.
        quantization: what was asked.
        product: the GPU as its label names it, for the message.
        architecture: its compute capability, e.g. `sm_89`.

    Raises:
        InputError: which formats the GPU serves, and which GPUs the format needs.
    """
    asked: tuple[tuple[str, str, Sequence[Row]], ...] = (
        ("quantization.format", quantization.format, FORMATS),
        ("quantization.kv_cache", quantization.kv_cache, KV_CACHES),
    )
    for field, value, rows in asked:
        check_served(field, value, rows, kind, product, architecture)


def check_served(
    field: str, value: str, rows: Sequence[Row], kind: EngineKind, product: str, architecture: str
) -> None:
    """Refuse one format of `rows` that the GPU has no arithmetic for; `field` is what names it.

    Raises:
        InputError: as check_format.
    """
    runs_on = {row.format: row.architectures for row in rows if row.kind == kind}
    if architecture in runs_on.get(value, ()):
        return
    others = served(rows, kind, architecture)
    fits = f"{product} serves {', '.join(others)}" if others else f"{kind} is not known to run on {architecture}"
    needs = f"; {value} needs {_in_words(runs_on[value])}" if value in runs_on else ""
    raise InputError(
        f"{field} {value} with {kind} on {product} ({architecture}): {fits}{needs}. Choose one of these formats, "
        "or a GPU that has the one that was asked."
    )


def served(rows: Sequence[Row], kind: EngineKind, architecture: str) -> list[str]:
    """Formats that an engine of this kind serves on this architecture."""
    return [row.format for row in rows if row.kind == kind and architecture in row.architectures]


def _in_words(architectures: Sequence[str]) -> str:
    return f"one of {', '.join(architectures)}" if len(architectures) > 1 else architectures[0]


@dataclass(frozen=True)
class TritonImage:
    """What an image of a Triton release holds."""

    release: str
    flavour: Flavour
    runtime: str
    """Version of TensorRT-LLM, or of vLLM."""
    tensorrt: str | None
    cuda: str
    source: str


MATRIX = "triton-inference-server/server docs/introduction/compatibility.md @ e1db8a603 (26.08: branch r26.08)"
BACKEND_IMAGE = "triton-inference-server/tensorrtllm_backend dockerfile/Dockerfile.triton.trt_llm_backend @ r{release}"
BUILT_FROM: frozenset[str] = frozenset({"26.04", "26.05", "26.06", "26.07"})
"""Releases whose trtllm image's own Dockerfile was read too: it names the same TensorRT-LLM and TensorRT."""
IMAGE_ROWS: tuple[tuple[Flavour, str, str, str | None, str], ...] = (
    ("trtllm", "26.07", "1.2.1", "10.14.1.48", "13.1.0.036"),
    ("trtllm", "26.06", "1.2.1", "10.14.1.48", "13.1.0.036"),
    ("trtllm", "26.05", "1.2.1", "10.14.1.48", "13.1.0.036"),
    ("trtllm", "26.04", "1.2.1", "10.14.1.48", "13.1.0.036"),
    ("trtllm", "26.03", "1.2.0", "10.14.1.48", "13.1.0.036"),
    ("trtllm", "26.02", "1.1.0", "10.13.3.9", "13.0.2.006"),
    ("trtllm", "26.01", "1.1.0", "10.13.3.9", "13.0.2.006"),
    ("trtllm", "25.12", "1.1.0", "10.13.3.9", "13.0.2.006"),
    ("trtllm", "25.11", "1.0.3.2510", "10.13.3.9", "13.0.2.006"),
    ("trtllm", "25.10", "1.0.0", "10.11.0.33", "12.9.1.010"),
    ("vllm", "26.08", "0.27.1", None, "13.4.1.012"),
    ("vllm", "26.07", "0.24.0", None, "13.3.0.035"),
    ("vllm", "26.06", "0.22.1", None, "13.3.0.035"),
    ("vllm", "26.05", "0.19.0", None, "13.2.1.009"),
    ("vllm", "26.04", "0.19.0", None, "13.2.1.009"),
    ("vllm", "26.03", "0.17.1", None, "13.2.0.046"),
    ("vllm", "26.02", "0.15.1", None, "13.1.1.006"),
    ("vllm", "26.01", "0.13.0", None, "13.1.1.006"),
    ("vllm", "25.12", "0.11.1", None, "13.1.0.036"),
    ("vllm", "25.11", "0.11.0", None, "13.0.2.006"),
    ("vllm", "25.10", "0.10.2", None, "13.0.2.006"),
)
"""Flavour, release, version of TensorRT-LLM or vLLM, of TensorRT, of CUDA."""


def _source_of(flavour: Flavour, release: str) -> str:
    own = flavour == "trtllm" and release in BUILT_FROM
    return f"{MATRIX}; {BACKEND_IMAGE.format(release=release)}" if own else MATRIX


STATED_IMAGES: dict[tuple[Flavour, str], TritonImage] = {
    (flavour, release): TritonImage(release, flavour, runtime, tensorrt, cuda, _source_of(flavour, release))
    for flavour, release, runtime, tensorrt, cuda in IMAGE_ROWS
}

FLAVOURS: dict[EngineKind, Flavour] = {"trt-engine": "trtllm", "llmapi": "trtllm", "vllm": "vllm"}
RELEASES: dict[EngineKind, tuple[str, ...]] = {
    "trt-engine": ("26.04", "26.05", "26.06", "26.07"),
    "llmapi": ("26.04", "26.05", "26.06", "26.07"),
    "vllm": ("26.04", "26.05", "26.06", "26.07"),
}
"""Releases whose tools tests/contracts speaks of; each record there says what of it is not confirmed."""

ENGINES_END = "1.3.0rc21"
"""First TensorRT-LLM without engines (GitHub release v1.3.0rc20: the last one with the TensorRT backend; pull requests
15907 and 15918). No Triton image with it is documented."""

IMAGES_HOLD = (1, 2)
"""Series of TensorRT-LLM in all images of Triton that serve it here."""

TRITON_RELEASE = re.compile(r"(?<![0-9.])(2[0-9]\.(?:0[1-9]|1[0-2]))(?![0-9.])")
TRTLLM_VERSION = re.compile(r"(?:tensorrt-llm/release:|trtllm-)v?([0-9]+\.[0-9]+\.[0-9]+(?:rc[0-9]+)?)")


def image_of(image: str, kind: EngineKind) -> TritonImage:
    """What the serving image of an engine holds, by the Triton release that its tag names.

    A tag names a release as NVIDIA's own do (`26.07-trtllm-python-py3`); one of an image built from such a one carries
    it along (`0.1.0-26.07`), with or without a digest behind it.

    Raises:
        InputError: the tag names no release, or one that does not serve this kind of engine.
    """
    flavour, known = FLAVOURS[kind], ", ".join(RELEASES[kind])
    name = image.partition("@")[0]
    tag = name.rpartition("/")[2].partition(":")[2]
    if own := TRTLLM_VERSION.search(name):
        raise InputError(_runtime_refusal(image, kind, own[1]))
    found = TRITON_RELEASE.search(tag)
    if found is None:
        raise InputError(
            f"serving image {image}: its tag names no Triton release, which decides what {kind} can use. Name the "
            f"release that it was built from in the tag, e.g. 0.1.0-{RELEASES[kind][-1]}; {kind} runs on {known}."
        )
    other = next((name for name in ("trtllm", "vllm") if name in tag and name != flavour), None)
    stated = STATED_IMAGES.get((flavour, found[1]))
    if other is not None or stated is None or found[1] not in RELEASES[kind]:
        has = f"it holds {other}" if other else _in_image(stated, found[1])
        raise InputError(
            f"serving image {image} with {kind}: {has}. {kind} runs on Triton {known} with {flavour}; choose one of "
            f"these images{_way_out(kind)}."
        )
    return stated


def _in_image(stated: TritonImage | None, release: str) -> str:
    if stated is None:
        return f"Triton {release} is not in the table of images (tasks/contracts/compatibility.py)"
    return f"Triton {release} holds {stated.flavour} {stated.runtime}"


def _runtime_refusal(image: str, kind: EngineKind, version: str) -> str:
    series = tuple(int(part) for part in version.split(".")[:2])
    if FLAVOURS[kind] == "trtllm" and series < IMAGES_HOLD:
        return (
            f"serving image {image} with {kind}: TensorRT-LLM {version} is too old, expected 1.2.1. Choose an image of "
            f"Triton {', '.join(RELEASES[kind])}."
        )
    if kind == "trt-engine" and series > IMAGES_HOLD:
        return (
            f"serving image {image} with trt-engine: TensorRT-LLM {version}, expected 1.2.1; engines ended with "
            f"{ENGINES_END}. Choose an image of Triton {', '.join(RELEASES[kind])}{_way_out(kind)}."
        )
    return (
        f"serving image {image} with {kind}: it names TensorRT-LLM {version} and no Triton release, expected an image "
        f"of Triton {', '.join(RELEASES[kind])}."
    )


def _way_out(kind: EngineKind) -> str:
    return ", or move the spec with `slipway migrate --to llmapi`" if kind == "trt-engine" else ""


MINIMUM_DRIVER = {"13": 580, "12": 525}
"""Branch of the driver by CUDA's major version (docs.nvidia.com/deploy/cuda-compatibility, minor version
compatibility, table 1). An older one needs NVIDIA's forward compatibility package, which is not counted on."""


def check_driver(image: TritonImage, product: str, gpu: Gpu) -> None:
    """Refuse nodes whose driver is too old for the image's CUDA; nothing is known of a driver that no site file names.

    Raises:
        InputError: the driver's branch, and the one that is needed.
    """
    needed = MINIMUM_DRIVER[image.cuda.partition(".")[0]]
    if gpu.driver is not None and int(gpu.driver.partition(".")[0]) < needed:
        older = [
            other.release
            for other in STATED_IMAGES.values()
            if other.flavour == image.flavour
            and MINIMUM_DRIVER[other.cuda.partition(".")[0]] <= int(gpu.driver.partition(".")[0])
        ]
        fits = f"; it runs images up to {max(older)}" if older else ""
        raise InputError(
            f"gpus.{product}.driver is {gpu.driver}, Triton {image.release} with {image.flavour} holds CUDA "
            f"{image.cuda} and needs {needed} or later{fits}. Upgrade the nodes' driver."
        )


MODEL_STEPS: frozenset[Step] = frozenset({"quantize", "build", "assemble"})
"""Steps that run an engine's toolkit."""


def needs_gpu(step: Step, spec: ReleaseSpec) -> bool:
    """Whether the step's pod asks for GPUs.

    An engine of TensorRT-LLM is made and booted on them. Of llmapi and vllm nothing is built, and weights that keep
    their format pass through quantize as files.
    """
    if spec.engine.gpu is None or step not in MODEL_STEPS:
        return False
    if spec.engine.kind == "trt-engine" or step == "assemble":
        return True
    return step == "quantize" and spec.quantization.format != "none"


HELD = 0.85
"""Share of a GPU's memory that weights may take while they are quantized. The rest is for CUDA, a text's
activations and logits, and what whole layers leave free: an allowance."""


def gpus_to_hold(weights_bytes: int, gpu: Gpu) -> int:
    """How many GPUs hold weights while they are quantized: the toolkits spread whole layers over all that they see.

    TensorRT-LLM's quantize.py and ModelOpt's step load with `device_map` auto. What the GPUs do not hold it lays
    into the host's memory, which the pod was not given for it.
    """
    return -(-weights_bytes // int(gpu.memory_gib * HELD * 2**30))


MULTI_NODE_KINDS: frozenset[EngineKind] = frozenset({"trt-engine"})
"""Kinds whose ranks may span nodes: those of the C++ runtime, which mpirun starts."""


def nodes_of(kind: EngineKind, tensor_parallel: int, pipeline_parallel: int, product: str, gpu: Gpu) -> int:
    """How many nodes the ranks of one replica take: a part of one, or several whole ones.

    Tensor parallel ranks exchange in every layer and stay on a node. An engine counts its ranks by whole nodes
    (`gpus_per_node` in tensorrt_llm/mapping.py), so that several nodes are filled.

    Raises:
        InputError: no number of nodes gives this product; which products do.
    """
    ranks, per_node = tensor_parallel * pipeline_parallel, gpu.per_node
    if ranks <= per_node:
        return 1
    what = f"engine.tensor_parallel {tensor_parallel} x pipeline_parallel {pipeline_parallel} is {ranks} GPUs"
    if kind not in MULTI_NODE_KINDS:
        raise InputError(
            f"{what}, a node has {per_node} {product}, and {kind} is served on one node. Choose a product of at most "
            f"{per_node}, a GPU with more on a node, or trt-engine."
        )
    if ranks % per_node or per_node % tensor_parallel:
        tensors = [tensor for tensor in range(per_node, 0, -1) if not per_node % tensor]
        nodes = -(-ranks // per_node)
        fit = [f"{tensor} x {nodes * per_node // tensor}" for tensor in tensors]
        raise InputError(
            f"{what}, a node has {per_node} {product}: no number of whole nodes gives this. Tensor x pipeline that "
            f"{nodes} nodes give: {', '.join(fit)}."
        )
    return ranks // per_node
