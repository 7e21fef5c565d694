"""What is taken of an adapter, and that it is refused where its weights are not what its configuration says."""

import json

import pytest

from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.preflight.sources import files_of_adapter
from slipway.tasks.engines.registry import maker_for
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import SPEC, spec
from tests.fixtures.adapters import TINY, adapter_config, lora_tensors
from tests.support.refused import refused

LAYER = "base_model.model.model.layers.0.self_attn.q_proj"
KINDS = ("vllm", "llmapi")


@pytest.fixture
def quantized(tmp_path):
    """Runs quantize of a kind over a Llama and an adapter of rank 8 with `changed` tensors; None leaves one out."""
    import numpy as np
    from safetensors.numpy import save_file

    source, out = tmp_path / "source", tmp_path / "out"
    folder = source / "lora" / "polite"
    folder.mkdir(parents=True)
    out.mkdir()
    own = {
        f"model.layers.{number}.self_attn.{layer}.weight": shape for number in (0, 1) for layer, shape in OWN.items()
    }
    save_file({name: np.ones(shape, dtype=np.float16) for name, shape in own.items()}, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(TINY))
    (source / "tokenizer.json").write_text("{}")
    (folder / "adapter_config.json").write_text(json.dumps(adapter_config(8)))

    def run(kind, changed):
        shapes = {name: each.shape for name, each in lora_tensors(8).items()} | changed
        tensors = {name: np.ones(shape, dtype=np.float16) for name, shape in shapes.items() if shape}
        save_file(tensors, folder / "adapter_model.safetensors")
        engine = {**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-A10G", "lora": [{"name": "polite", "repo": "o/p"}]}
        made = maker_for(kind)
        return made.quantize(source, spec(quantization={"format": "none"}, engine=engine), out, Texts())

    return run


OWN = {"q_proj": (16, 16), "v_proj": (8, 16)}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({f"{LAYER}.lora_A.weight": (64, 16), f"{LAYER}.lora_B.weight": (16, 64)}, "A [64, 16], B [16, 64]"),
        ({f"{LAYER}.lora_A.weight": (8, 32)}, "32 inputs and 16 outputs, the model's weight is [16, 16]"),
        ({f"{LAYER}.lora_B.weight": (8, 8)}, "16 inputs and 8 outputs"),
        ({f"{LAYER}.lora_A.weight": (8, 16, 1)}, "q_proj"),
        ({f"{LAYER}.lora_A.weight": (8, 0)}, "0 inputs"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_matrices_of_another_rank_or_size_are_refused(quantized, kind, changed, found):
    with refused(what="adapter polite has weights that do not fit its rank or the model", found=found):
        quantized(kind, changed)


@pytest.mark.parametrize(
    "changed",
    [
        {f"{LAYER}.lora_B.weight": None},
        {"weight": (8, 8)},
        {f"{LAYER}.lora_magnitude_vector": (16,)},
        dict.fromkeys(lora_tensors(8)),
    ],
    ids=["half", "no LoRA", "DoRA", "empty"],
)
def test_names_that_vllm_does_not_read_are_refused(quantized, changed):
    with refused(what="adapter polite has weights that do not fit"):
        quantized("vllm", changed)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"base_model.model.lm_head.lora_A.weight": (8, 16), "base_model.model.lm_head.lora_B.weight": (32, 8)},
        {
            "base_model.model.model.embed_tokens.lora_embedding_A": (8, 32),
            "base_model.model.model.embed_tokens.lora_embedding_B": (16, 8),
            "base_model.model.model.embed_tokens.base_layer.weight": (32, 16),
        },
        {
            "base_model.model.model.layers.0.mlp.experts.lora_A.weight": (32, 16),
            "base_model.model.model.layers.0.mlp.experts.lora_B.weight": (16, 32),
        },
    ],
    ids=["attention", "head", "vocabulary", "stacked experts"],
)
def test_what_vllm_applies_is_accepted(quantized, changed):
    assert quantized("vllm", changed)["weights_bytes"] > 0


EXPERTS = "base_model.model.model.layers.0.mlp.experts"


@pytest.mark.parametrize(
    "changed",
    [
        {f"{EXPERTS}.base_layer.lora_A.weight": (32, 24), f"{EXPERTS}.base_layer.lora_B.weight": (16, 32)},
        {f"{EXPERTS}.lora_A.weight": (32, 16), f"{EXPERTS}.lora_B.weight": (12, 32)},
    ],
)
def test_matrices_of_transposed_experts_are_refused_before_a_gpu_is(quantized, changed):
    with refused(what="transposed experts", expected="16, the model's hidden_size"):
        quantized("vllm", changed)


@pytest.mark.parametrize("module", ["layers.2.self_attn.q_proj", "layers.0.self_attn.query_key_value", "h.0.c_attn"])
def test_layers_that_the_model_does_not_have_are_refused_before_a_gpu_is(quantized, module):
    name = f"base_model.model.model.{module}"

    with refused(what="adapter polite changes 1 layers that the model does not have", found=module):
        quantized("vllm", {f"{name}.lora_A.weight": (8, 16), f"{name}.lora_B.weight": (16, 8)})


@pytest.mark.parametrize("weights", ["adapter_model.safetensors", "adapter_model.bin"])
def test_nothing_but_safetensors_and_a_configuration_is_taken_of_an_adapters_repository(weights):
    """Neither a pickle, nor code, nor a tokenizer or template that would take the model's place."""
    others = ("adapter_config.json", "adapter_model.pt", "modeling.py", "tokenizer.json", "chat_template.jinja", "a/b")
    hub = MemoryHub({"o/p": {"main": dict.fromkeys((weights, *others), b"{}")}})

    if weights.endswith(".bin"):
        with refused(what="has no safetensors weights", found="adapter_model.bin, adapter_model.pt"):
            files_of_adapter(hub.resolve("o/p", "main"))
    else:
        taken = [file.path for file in files_of_adapter(hub.resolve("o/p", "main")).files]
        assert taken == ["adapter_config.json", "adapter_model.safetensors"]
