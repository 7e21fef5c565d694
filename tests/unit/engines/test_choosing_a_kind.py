"""The engine kind that plan recommends for a model on a GPU, and why."""

import pytest

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS
from slipway.tasks.contracts.spec.gate import Gate
from slipway.tasks.contracts.spec.gpu_formats import ARCHITECTURES
from slipway.tasks.engines.kind_choice import limits_latency, recommended
from slipway.tasks.engines.trtllm.families import CONVERTERS, QUANTIZED
from slipway.tasks.engines.upstream.tables import table_of


def chosen(architecture, gpu="sm_89", *, quantized=False, latency=True):
    return recommended({"architectures": [architecture]}, gpu, quantized=quantized, limits_latency=latency)


@pytest.mark.parametrize(
    ("asked", "kind", "because"),
    [
        ({"architecture": "LlamaForCausalLM"}, "trt-engine", "TensorRT-LLM 1.2.1 knows LlamaForCausalLM"),
        ({"architecture": "LlamaForCausalLM", "latency": False}, "vllm", "the gate limits no latency"),
        ({"architecture": "LlamaForCausalLM", "quantized": True}, "vllm", "already quantized"),
        ({"architecture": "LlamaForCausalLM", "gpu": "sm_75"}, "vllm", "builds no engine for sm_75"),
        ({"architecture": "LlamaForCausalLM", "gpu": "sm_121"}, "vllm", "builds no engine for sm_121"),
        ({"architecture": "Qwen3_5ForConditionalGeneration"}, "vllm", "builds no engine of Qwen3_5"),
        ({"architecture": "Gemma4ForConditionalGeneration"}, "vllm", "builds no engine of Gemma4"),
    ],
)
def test_an_engine_where_its_family_and_gpu_are_known_and_latency_matters_and_vllm_elsewhere(asked, kind, because):
    found = chosen(**asked)

    assert found.kind == kind
    assert because in found.because


@pytest.mark.parametrize("gpu", ARCHITECTURES)
def test_every_class_of_vllms_newest_table_gets_a_kind_that_has_it(gpu):
    for architecture in table_of("vllm", "0.27.1")["generators"]:
        found = chosen(architecture, gpu)

        assert not ENGINE_KINDS[found.kind].compiled or architecture in {*CONVERTERS, *QUANTIZED}
        assert found.because


@pytest.mark.parametrize(("metric", "limited"), [("itl_ms", True), ("latency_ms", True), ("error_rate", False)])
def test_a_gate_limits_latency_by_its_own_lines(metric, limited):
    quantile = {"quantile": 0.95} if limited else {}
    expect = [{"metric": metric, "at_most": 0.0 if not limited else 100.0, **quantile}]
    gate = Gate.model_validate({"smoke": [{"prompt": "?", "answer": "!"}], "expect": expect})

    assert limits_latency(gate) == limited
