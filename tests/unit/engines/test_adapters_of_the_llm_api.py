"""LoRA adapters on their way through quantize and build for TensorRT-LLM's LLM API."""

import json

import pytest
from safetensors.numpy import load_file

from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.checkpoint.lora_modules import modules_of
from slipway.tasks.engines.registry import maker_for
from tests.fakes.releases import SPEC, spec
from tests.fixtures.adapters import TINY, write_adapter, write_model_with_adapters
from tests.support.refused import refused

LORA = [{"name": name, "repo": f"org/{name}"} for name in ("terse", "polite")]
VISION = "base_model.model.vision_tower.encoder.layers.0.self_attn.q_proj.lora_A.weight"


def asked(**engine):
    settings = {**SPEC["engine"], "kind": "llmapi", "gpu": "NVIDIA-A10G", "lora": LORA, **engine}
    return spec(quantization={"format": "none"}, engine=settings)


@pytest.fixture
def checkpoint(tmp_path):
    return write_model_with_adapters(tmp_path / "source")


def build(checkpoint, tmp_path, settings):
    out = tmp_path / "built"
    out.mkdir()
    maker = maker_for("llmapi")
    return maker.build(checkpoint, settings, out), maker.template_values(out, settings)


def test_it_makes_room_for_all_adapters_and_serves_what_they_change(checkpoint, tmp_path):
    description, values = build(checkpoint, tmp_path, asked(options={"max_loras": 1}))

    assert description["adapters"] == {"polite": 8, "terse": 16}
    assert values["loras"] == {"polite": "lora/polite", "terse": "lora/terse"}
    assert values["options"]["lora_config"] == {
        "lora_target_modules": description["adapter_modules"],
        "max_lora_rank": 16,
        "max_loras": 1,
        "max_cpu_loras": 2,
    }
    assert values["options"]["peft_cache_config"] == {"optimal_adapter_size": 16, "max_adapter_size": 16}
    assert values["options"]["cuda_graph_config"] is None
    built = tmp_path / "built" / "lora" / "terse" / "adapter_model.safetensors"
    assert load_file(built).keys() == load_file(checkpoint / "lora/terse/adapter_model.safetensors").keys()


def test_without_adapters_it_is_asked_for_none(checkpoint, tmp_path):
    description, values = build(checkpoint, tmp_path, asked(lora=[]))

    assert "adapter_modules" not in description
    assert values["loras"] == {}
    assert values["options"].keys() == {"max_num_tokens", "trust_remote_code"}


@pytest.mark.parametrize(
    ("extra", "found"),
    [
        ("base_model.model.lm_head.lora_A.weight", "lm_head"),
        (VISION, "vision_tower"),
        (f"base_model.model.model.layers.{'9' * 5000}.self_attn.q_proj.lora_A.weight", "layers.999"),
        ("base_model.model.model.layers.0.mlp.experts.3.gate_proj.lora_A.weight", "experts.3"),
        ("base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", "only one matrix of layer 7 q_proj"),
    ],
)
def test_weights_that_tensorrt_llm_would_not_apply_are_refused(checkpoint, tmp_path, extra, found):
    write_adapter(checkpoint / "lora" / "polite", 8, extra=[extra])

    with refused(what="adapter polite has weights that TensorRT-LLM would leave out", found=found):
        maker_for("llmapi").quantize(checkpoint, asked(), tmp_path, Texts())


def test_layers_that_a_pattern_hid_from_plan_are_refused_before_anything_is_quantized(checkpoint, tmp_path):
    """Mistral's MLP is called without adapters by the PyTorch runtime."""
    (checkpoint / "config.json").write_text(json.dumps({**TINY, "architectures": ["MistralForCausalLM"]}))

    with refused(
        what="adapter terse", found="down_proj, gate_proj, up_proj", expected="k_proj, o_proj, q_proj, v_proj"
    ):
        maker_for("llmapi").quantize(checkpoint, asked(), tmp_path, Texts())


@pytest.mark.parametrize(
    ("layers", "modules"),
    [
        (["q_proj", "v_proj"], ["attn_q", "attn_k", "attn_v"]),
        (["o_proj"], ["attn_dense"]),
        (["up_proj"], ["mlp_h_to_4h", "mlp_gate"]),
        (["down_proj", "k_proj"], ["attn_q", "attn_k", "attn_v", "mlp_4h_to_h"]),
    ],
)
def test_modules_that_are_served_only_together_come_together(layers, modules):
    assert modules_of(layers) == modules
