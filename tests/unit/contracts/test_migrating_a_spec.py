"""A spec of an engine that is built, rewritten for one that is loaded."""

import copy

import pytest

from slipway.tasks.contracts.spec.migrate import to_llmapi
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.fakes.releases import SPEC
from tests.support.refused import refused

CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl"}


def document(quantization, kv_cache="none", kind="trt-engine", calibration=CALIBRATION, **engine):
    return {
        **SPEC,
        "quantization": {"format": quantization, "kv_cache": kv_cache, "calibration": calibration},
        "engine": {**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-L4", **engine},
    }


def migrated(data):
    return to_llmapi(ReleaseSpec.model_validate(data), data)


@pytest.mark.parametrize("quantization", ["int4_awq", "w4a8_awq", "fp8", "nvfp4"])
def test_only_the_kind_changes_where_both_have_the_format(quantization):
    before = document(quantization)

    after = migrated(before).document

    assert after == {**before, "engine": {**before["engine"], "kind": "llmapi"}}


@pytest.mark.parametrize(
    "quantization", ["none", "int8_wo", "int4_wo", "int8_sq", "int4_awq", "w4a8_awq", "fp8", "nvfp4"]
)
@pytest.mark.parametrize("kv_cache", ["none", "fp8", "int8"])
def test_what_comes_out_is_a_valid_spec_and_the_old_one_is_left_alone(quantization, kv_cache):
    before = document(quantization, kv_cache)
    kept = copy.deepcopy(before)

    after = ReleaseSpec.model_validate(migrated(before).document)

    assert before == kept
    assert after.engine.kind == "llmapi"
    assert after.quantization.kv_cache != "int8"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (document("int8_sq"), "quantization.format int8_sq: rewritten to int4_awq"),
        (document("int4_wo"), "quantization.format int4_wo: rewritten to int4_awq"),
        (document("int8_wo"), "quantization.format int8_wo: rewritten to int4_awq"),
        (document("int8_wo", calibration=None), "quantization.format int8_wo: rewritten to none, twice as large"),
        (document("int4_wo", calibration=None), "quantization.format int4_wo: rewritten to none, four times as large"),
        (document("int8_sq", "int8"), "quantization.kv_cache int8: rewritten to none"),
        (document("none", "fp8"), "scales of quantization.kv_cache fp8: beside weights that are not quantized"),
    ],
)
def test_what_has_no_equivalent_is_named(data, words):
    assert any(line.startswith(words) for line in migrated(data).without_equivalent)


def test_ranks_over_several_nodes_have_an_equivalent():
    found = migrated(document("fp8", tensor_parallel=4, pipeline_parallel=2))

    assert not [line for line in found.without_equivalent if line.startswith("pipeline_parallel")]


def test_calibration_that_nobody_would_read_is_removed_and_named():
    found = migrated(document("none"))

    assert "calibration" not in found.document["quantization"]
    assert any("calibration removed" in line for line in found.changes)


def test_another_kind_is_not_migrated():
    with refused(found="vllm", expected="trt-engine"):
        migrated(document("fp8", kind="vllm"))
