"""LoRA adapters on their way through quantize and build for an engine of TensorRT-LLM, whose tools here move files."""

import json

import numpy as np
import pytest

from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.trtllm.maker import TrtMaker
from tests.fakes.releases import SPEC, spec
from tests.fakes.servers.tensorrt_llm_tools import install
from tests.fixtures.adapters import write_adapter, write_model_with_adapters
from tests.support.refused import refused

LORA = [{"name": name, "repo": f"org/{name}"} for name in ("terse", "polite")]
GPU_BYTES = 24 * 2**30


def asked(**engine):
    settings = {**SPEC["engine"], "kind": "trt-engine", "gpu": "NVIDIA-A10G", "lora": LORA, **engine}
    return spec(quantization={"format": "none"}, engine=settings)


@pytest.fixture
def checkpoint(tmp_path):
    return write_model_with_adapters(tmp_path / "source")


@pytest.fixture
def make(tmp_path, checkpoint, monkeypatch):
    """Quantize and build an engine; its folder, and what was read back."""
    examples, programs = install(tmp_path / "image")
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("SM", "86")

    def run(spec, memory=GPU_BYTES):
        engine = TrtMaker(examples=[examples], gpus=lambda: 1, memory=lambda: memory)
        quantized, out = tmp_path / "quantized", tmp_path / "engine"
        quantized.mkdir()
        out.mkdir()
        engine.quantize(checkpoint, spec, quantized, Texts())
        return out, engine.build(quantized, spec, out)

    return run


def arrays(out, name):
    folder = out / "lora" / name
    return np.load(folder / "model.lora_weights.npy"), np.load(folder / "model.lora_config.npy")


def test_an_engine_has_room_for_what_its_adapters_change_together(make):
    out, description = make(asked())
    built = json.loads((out / "config.json").read_text())["build_config"]["lora_config"]

    assert built["max_lora_rank"] == 16
    assert built["lora_target_modules"] == description["adapter_modules"]
    assert set(description["adapter_modules"]) == {
        *("attn_q", "attn_k", "attn_v", "attn_dense", "mlp_h_to_4h", "mlp_gate", "mlp_4h_to_h")
    }
    assert description["adapters"] == {"polite": 8, "terse": 16}


def test_adapters_lie_beside_the_engine_as_requests_carry_them_in_the_models_own_type(make):
    out, description = make(asked())
    weights, config = arrays(out, "polite")

    assert (description["adapter_dtype"], weights.dtype.kind, weights.dtype.itemsize) == ("bfloat16", "V", 2)
    assert weights.shape[:2] == config.shape[:2] == (1, 4)
    assert sorted(config[0].tolist()) == [[1, 0, 8], [1, 1, 8], [3, 0, 8], [3, 1, 8]]
    assert not (out / "lora" / "polite" / "adapter_model.safetensors").exists()


def test_the_backend_is_given_its_adapters_room_and_their_type(make):
    settings = asked(options={"max_loras": 1})
    out, description = make(settings)
    values = TrtMaker().template_values(out, settings)
    cache = description["adapter_cache"]
    # rows as wide as k and v, 16 + 8: q and o need two, gate, up and down three
    page = 2 * 16 * 2 * (2 + 1 + 1 + 2 + 3 + 3 + 3) * 24

    assert values["lora_cache"] == cache
    assert values["loras"] == {"polite": "lora/polite", "terse": "lora/terse"}
    assert values["lora_type"] == "TYPE_BF16"
    assert (cache["optimal_adapter_size"], cache["max_adapter_size"]) == (16, 16)
    assert cache["host_memory_bytes"] == 2 * page
    assert page / GPU_BYTES < cache["gpu_memory_fraction"] < 0.001


def test_without_adapters_an_engine_has_no_room_for_any(make):
    settings = asked(lora=[])
    out, description = make(settings)
    values = TrtMaker().template_values(out, settings)

    assert not any("adapter" in name for name in description)
    assert (values["loras"], values["lora_cache"], values["lora_type"]) == ({}, {}, "TYPE_FP16")
    assert not (out / "lora").exists()


def test_an_engine_without_the_room_that_was_asked_for_is_refused(make, monkeypatch):
    monkeypatch.setenv("SPOIL", json.dumps({"build_config.lora_config.max_lora_rank": 8}))

    with refused(what="lora_config.max_lora_rank differs", found="8", expected="16"):
        make(asked())


def test_layers_that_the_converter_leaves_out_are_missed(make, monkeypatch):
    monkeypatch.setenv("FORGETS", "v_proj")

    with refused(what="left out layers of adapter polite", found="2 layers", expected="4"):
        make(asked())


def test_a_gpu_without_room_for_adapters_beside_its_engine_is_refused(make):
    with refused(what="2 adapters need", found="0.00 GiB free", remedy="max_loras"):
        make(asked(), memory=2**30)


def test_weights_that_the_converter_would_leave_out_are_refused_before_anything_is_quantized(make, checkpoint):
    write_adapter(checkpoint / "lora" / "polite", 8, extra=["base_model.model.lm_head.lora_A.weight"])

    with refused(what="adapter polite has weights that TensorRT-LLM would leave out", found="lm_head"):
        make(asked())
