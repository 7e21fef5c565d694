"""A checkpoint's configuration cannot make transformers fetch or run what was not downloaded: the real one loads it."""

import json

import pytest

from slipway.tasks.engines.checkpoint.transformers_model import load_model
from tests.support.refused import refused

pytestmark = pytest.mark.timeout(120)  # transformers and torch are imported

KERNEL = "stranger/kernel"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("checkpoint")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, vocab_size=32, **sizes)).save_pretrained(folder)
    return folder


@pytest.fixture
def stating(checkpoint):
    """Writes keys into config.json; they are gone after the test."""
    file = checkpoint / "config.json"
    text = file.read_text()
    yield lambda keys: file.write_text(json.dumps(json.loads(text) | keys))
    file.write_text(text)


@pytest.mark.parametrize(
    "keys",
    [
        {"_attn_implementation": KERNEL},
        {"attn_implementation": KERNEL},
        {"_attn_implementation": {"": KERNEL}},
        {"_experts_implementation": KERNEL},
        {"experts_implementation": KERNEL},
        {"_attn_implementation": "flash_attention_2"},
        {"auto_map": {"AutoConfig": f"{KERNEL}--m.C", "AutoModelForCausalLM": f"{KERNEL}--m.M"}},
    ],
    ids=str,
)
def test_kernels_and_code_that_a_configuration_names_are_not_used(keys, checkpoint, stating):
    import torch

    stating(keys)

    model = load_model(checkpoint, dtype=torch.float32)

    assert (model.config._attn_implementation, model.config._experts_implementation) == ("sdpa", "eager")
    assert type(model).__module__.startswith("transformers.models.llama")


@pytest.mark.parametrize(
    "keys", [{"quantization_config": {"quant_method": "mxfp4"}}, {"transformers_weights": "../other.safetensors"}]
)
def test_another_loader_of_the_weights_is_refused(keys, checkpoint, stating):
    stating(keys)

    with refused(what="another loader", found=next(iter(keys))):
        load_model(checkpoint, dtype="auto")
