"""Which formats run on which GPU, and what is said of those that do not."""

import pytest

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, kinds_with
from slipway.tasks.contracts.spec.gpu_formats import ARCHITECTURES, FORMATS, KV_CACHES, check_format
from slipway.tasks.contracts.spec.spec import Quantization
from tests.support.refused import refused

A10G, L4, H100, B200 = ("NVIDIA-A10G", "sm_86"), ("NVIDIA-L4", "sm_89"), ("NVIDIA-H100", "sm_90"), ("B200", "sm_100")


def check(kind, quantization, gpu, kv_cache="none"):
    check_format(kind, Quantization(format=quantization, kv_cache=kv_cache), *gpu)


@pytest.mark.parametrize("kind", kinds_with("on_gpu"))
def test_the_table_and_the_spec_name_the_same_formats(kind):
    assert {row.format for row in FORMATS if row.kind == kind} == ENGINE_KINDS[kind].formats


def test_every_row_has_its_source_and_known_architectures_and_none_stands_twice():
    for rows in (FORMATS, KV_CACHES):
        assert len({(row.kind, row.format) for row in rows}) == len(rows)
        for row in rows:
            assert "/" in row.source or "docs." in row.source
            assert set(row.architectures) <= set(ARCHITECTURES)


@pytest.mark.parametrize(
    ("kind", "quantization", "gpu"),
    [
        ("trt-engine", "int4_awq", L4),
        ("trt-engine", "int8_sq", A10G),
        ("trt-engine", "fp8", H100),
        ("trt-engine", "nvfp4", B200),
        ("llmapi", "fp8", L4),
        ("vllm", "none", A10G),
    ],
)
def test_what_vendors_state_is_taken(kind, quantization, gpu):
    check(kind, quantization, gpu)


@pytest.mark.parametrize(
    ("kind", "quantization", "gpu", "what", "expected", "remedy"),
    [
        ("trt-engine", "fp8", A10G, "fp8 does not run on NVIDIA-A10G (sm_86)", "int8_sq, int4_awq", "sm_89"),
        ("trt-engine", "nvfp4", H100, "nvfp4 does not run on NVIDIA-H100 (sm_90)", "fp8", "sm_100"),
        ("llmapi", "fp8", A10G, "with llmapi", "one of none, int4_awq", "sm_89"),
        ("trt-engine", "int4_awq", B200, "on B200", "one of none, fp8, nvfp4", "sm_80"),
        ("vllm", "fp8", A10G, "with vllm", "one of none", "sm_89"),
        ("trt-engine", "none", ("T4", "sm_75"), "T4 (sm_75)", "known to run on", "another GPU"),
    ],
)
def test_what_a_gpu_has_no_arithmetic_for_is_refused_with_what_would_fit(
    kind, quantization, gpu, what, expected, remedy
):
    with refused(what=what, expected=expected, remedy=remedy):
        check(kind, quantization, gpu)


def test_a_cache_format_is_looked_up_too():
    with refused(what="quantization.kv_cache int8", expected="one of none, fp8"):
        check("llmapi", "fp8", L4, kv_cache="int8")
