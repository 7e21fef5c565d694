"""Layers that predict further tokens: who may use them, and that quantizing leaves them out."""

import pytest

from slipway.tasks.engines.checkpoint.predicting_layers import lost_layers, predicting_layers, without_predicting_layers
from tests.fakes.hubs.brought_models import LLAMA, Brought, plan
from tests.support.refused import refused

MTP = {"speculative": {"method": "mtp", "num_tokens": 1}}
H200 = "NVIDIA-H200"
QWEN = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {**LLAMA, "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1},
    "vision_config": {"model_type": "qwen3_5"},
}
GLM = {
    **LLAMA,
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "n_routed_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1408,
    "num_nextn_predict_layers": 1,
}


def nemotron(**fields):
    return {**LLAMA, "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", **fields}


@pytest.mark.parametrize("config", [QWEN, GLM, nemotron(num_nextn_predict_layers=1)])
def test_a_model_that_vllm_lets_predict_is_taken(config):
    plan(Brought(config), "vllm", H200, **MTP)


@pytest.mark.parametrize("config", [{**LLAMA, "num_nextn_predict_layers": 1}])
def test_a_model_that_vllm_does_not_let_predict_is_refused(config):
    with refused(what="has no multi-token prediction", found="llama"):
        plan(Brought(config), "vllm", H200, **MTP)


def test_layers_that_quantizing_leaves_out_cannot_predict():
    with refused(what="quantizing leaves out", found="1 such layers", remedy="format none or fp8_online"):
        plan(Brought(GLM), "vllm", H200, "fp8", **MTP)


def test_quantizing_a_model_with_such_layers_warns_of_their_loss():
    _, warnings = plan(Brought(GLM), "vllm", H200, "fp8")

    assert any("1 layers that predict further tokens" in warning for warning in warnings)


def test_weights_that_keep_their_layers_are_not_warned_of():
    _, warnings = plan(Brought(GLM), "vllm", H200)

    assert not any("predict" in warning for warning in warnings)


@pytest.mark.parametrize(
    "config", [QWEN, GLM, {"num_mtp_modules": 1}, {"text_config": {"num_layers": 1}, "num_nextn_predict_layers": 1}]
)
def test_their_number_is_read_wherever_it_stands_and_is_none_afterwards(config):
    assert predicting_layers(config) == 1
    assert predicting_layers(without_predicting_layers(config)) == 0


def test_a_decoder_layer_that_an_export_lost_is_named():
    source = {f"model.layers.{layer}.mlp.experts.0.w1.weight" for layer in range(5)} | {"mtp.layers.0.fc.weight"}
    exported = {f"model.layers.{layer}.mlp.experts.gate_up_proj" for layer in (0, 1, 3)}

    assert lost_layers(source, exported, 4) == [2]
