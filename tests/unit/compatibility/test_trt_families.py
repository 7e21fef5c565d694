"""Which models TensorRT-LLM's scripts make engines of, judged before a weight is downloaded."""

import pytest

from slipway.tasks.engines.trtllm.families import CONVERTERS, QUANTIZED
from tests.fakes.documents.gpu_planning import asked, of_class, plan
from tests.support.refused import refused


@pytest.mark.parametrize("architecture", CONVERTERS)
def test_each_family_that_has_a_converter_is_planned_unquantized(architecture):
    plan(asked("trt-engine"), **of_class(architecture))


@pytest.mark.parametrize("format_", ["fp8", "int4_awq", "int8_wo"])
@pytest.mark.parametrize("architecture", sorted(QUANTIZED))
def test_each_family_that_quantize_py_knows_is_planned_quantized(architecture, format_):
    plan(asked("trt-engine", format_), **of_class(architecture))


@pytest.mark.parametrize(
    ("format_", "kv_cache"), [("fp8", "none"), ("int8_wo", "none"), ("none", "fp8"), ("nvfp4", "fp8")]
)
@pytest.mark.parametrize("architecture", ["PhiForCausalLM", "DeepseekV2ForCausalLM", "GptOssForCausalLM"])
def test_a_family_that_quantize_py_does_not_know_is_refused_at_plan_and_not_after_hours(
    architecture, format_, kv_cache
):
    with refused(what="quantize.py and trtllm-build do not both know", found=architecture, expected="LlamaForCausalLM"):
        gpu = "NVIDIA-B200" if format_ == "nvfp4" else "NVIDIA-H100"
        plan(asked("trt-engine", format_, kv_cache, gpu=gpu), architectures=[architecture])


@pytest.mark.parametrize(
    "architecture",
    ["Llama4ForConditionalGeneration", "Mistral3ForConditionalGeneration", "Gemma3ForConditionalGeneration"],
)
def test_a_model_of_several_parts_is_neither_converted_nor_quantized(architecture):
    with refused(what="cannot convert this architecture", found=architecture):
        plan(asked("trt-engine"), architectures=[architecture])
    with refused(what="AutoModelForCausalLM", found=architecture, remedy="llmapi or vllm"):
        plan(asked("trt-engine", "fp8"), architectures=[architecture])


@pytest.mark.parametrize(
    ("architecture", "ranks", "what"),
    [
        ("Phi3ForCausalLM", {"tensor_parallel": 2}, "engine.tensor_parallel 2"),
        ("Phi3ForCausalLM", {"pipeline_parallel": 2}, "engine.pipeline_parallel 2"),
        ("PhiForCausalLM", {"pipeline_parallel": 2}, "engine.pipeline_parallel 2"),
        ("Gemma2ForCausalLM", {"pipeline_parallel": 2}, "engine.pipeline_parallel 2"),
    ],
)
def test_ranks_that_a_converter_does_not_make_are_refused(architecture, ranks, what):
    with refused(what=what, expected="1", remedy="to 1"):
        plan(asked("trt-engine", **ranks), **of_class(architecture))


def test_quantize_py_splits_weights_that_the_converter_does_not():
    plan(asked("trt-engine", "fp8", tensor_parallel=2), **of_class("Phi3ForCausalLM"))


@pytest.mark.parametrize(("format_", "warned"), [("fp8", 0), ("int4_awq", 1)])
def test_a_format_of_experts_that_modelopt_is_not_sure_of_is_warned_of(format_, warned):
    warnings = plan(asked("trt-engine", format_), **of_class("Qwen3MoeForCausalLM"), num_experts=8)

    assert sum("has experts" in warning for warning in warnings) == warned
