"""A checkpoint's configuration cannot make transformers fetch or run what was not downloaded: the real one loads it."""

import json
import shutil
import traceback

import pytest

from slipway.tasks.engines.checkpoint.own_code import NAMING_DOCUMENTS
from slipway.tasks.engines.checkpoint.transformers_model import load_model
from slipway.tasks.engines.registry import maker_for
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused

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


CLASSES = [
    *("AutoConfig", "AutoTokenizer", "AutoProcessor", "AutoImageProcessor", "AutoVideoProcessor"),
    *("AutoFeatureExtractor", "AutoModel", "AutoModelForCausalLM"),
]


def asked_for_code(folder):
    """Classes of transformers that look for the stranger's code when they load the folder and trust all code."""
    import transformers

    found = set()
    for name in CLASSES:
        try:
            getattr(transformers, name).from_pretrained(folder, trust_remote_code=True, local_files_only=True)
        except Exception:  # noqa: BLE001 - most of them cannot load this model
            if "get_class_from_dynamic_module" in traceback.format_exc():
                found.add(name)
    return found


@pytest.mark.parametrize("kind", ["llmapi", "vllm"])
def test_a_gpu_server_that_trusts_all_code_is_told_of_none(kind, checkpoint, tmp_path):
    """TensorRT-LLM's LLM API trusts it when it reads config.json, whatever its argument says."""
    own_code = {"auto_map": dict.fromkeys(CLASSES, f"{KERNEL}--m.C") | {"AutoTokenizer": [None, f"{KERNEL}--m.C"]}}
    source, out = tmp_path / "source", tmp_path / "out"
    out.mkdir()
    shutil.copytree(checkpoint, source)
    for name in NAMING_DOCUMENTS:
        written = json.loads((source / name).read_text()) if (source / name).exists() else {}
        (source / name).write_text(json.dumps({**written, **own_code, "_attn_implementation": {"": KERNEL}}))
    engine = {**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-L4"}

    maker_for(kind).build(source, spec(quantization={"format": "none"}, engine=engine), out)

    assert asked_for_code(source) >= {"AutoConfig", "AutoTokenizer", "AutoProcessor", "AutoModelForCausalLM"}
    assert asked_for_code(out) == set()
    assert all(KERNEL not in (out / name).read_text() for name in NAMING_DOCUMENTS)
