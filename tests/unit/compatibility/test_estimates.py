"""What quantize and build need of a node, from the sizes of a model's files."""

import pytest

from slipway.tasks.contracts.stored.plan import HubFile, Source
from slipway.tasks.engines.preflight.memory_fit import bytes_on_gpus
from slipway.tasks.engines.registry import planner_for
from tests.fakes.releases import SPEC, spec

WEIGHTS, REST = 16 * 10**9, 10**7
TOOLKIT = 8 * 2**30
FILES = {"model.safetensors": WEIGHTS, "tokenizer.json": REST}
SOURCE = Source(
    repo="org/model",
    revision="main",
    commit="c" * 40,
    files=tuple(
        HubFile(path=path, digest=f"sha256:{'0' * 64}", size_bytes=size_bytes) for path, size_bytes in FILES.items()
    ),
)


def asked(kind, quantization, kv_cache="none"):
    return spec(
        quantization={"format": quantization, "kv_cache": kv_cache},
        engine={**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-L4"},
    )


def estimate(kind, quantization, kv_cache="none"):
    """Scratch without the source, memory without the toolkit, and bytes on GPUs, in weights."""
    found = planner_for(kind).estimate(asked(kind, quantization, kv_cache), SOURCE)
    assert found.download_bytes == WEIGHTS + REST
    return (
        (found.scratch_bytes - WEIGHTS - REST) / WEIGHTS,
        (found.memory_bytes - TOOLKIT) / WEIGHTS,
        found.gpu_bytes / WEIGHTS,
    )


@pytest.mark.parametrize(
    ("quantization", "kv_cache", "scratch", "memory", "gpus"),
    [
        ("none", "none", 2 * 1.125, 2, 0),
        ("none", "int8", 2 * 1.125, 1.125, 1),
        ("fp8", "none", 2 * 0.625, 0.625, 1),
        # the checkpoint is as large as its source, and the builder holds it beside what it makes of it
        ("int8_wo", "none", 2 * 1.125, 1.125 + 0.625, 1),
        ("int4_wo", "none", 2 * 1.125, 1.125 + 0.375, 1),
    ],
)
def test_a_checkpoint_that_the_builder_quantizes_is_counted_in_full_precision(
    quantization, kv_cache, scratch, memory, gpus
):
    assert estimate("trt-engine", quantization, kv_cache) == pytest.approx((scratch, memory, gpus))


@pytest.mark.parametrize("kind", ["llmapi", "vllm"])
def test_weights_that_keep_their_format_take_no_gpu_whatever_the_cache(kind):
    for kv_cache in ("none", "fp8"):
        assert estimate(kind, "none", kv_cache)[2] == 0
        assert bytes_on_gpus(asked(kind, "none", kv_cache), SOURCE) == 0
    assert estimate(kind, "fp8") == pytest.approx((2 * 0.625, 1.625, 1))
