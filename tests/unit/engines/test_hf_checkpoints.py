"""Engines of llmapi and vllm are checkpoints: passed on as they are, or compared with what ModelOpt says it made."""

import json

import pytest
from safetensors.numpy import save_file

from tasks.contracts.errors import InputError
from tasks.engines.registry import engine_for
from tests.fakes.releases import SPEC, spec

KINDS = ("llmapi", "vllm")


def asked(kind, quantization="none", kv_cache="none", **engine):
    return spec(
        quantization={"format": quantization, "kv_cache": kv_cache},
        engine={**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-L4", **engine},
    )


@pytest.fixture
def checkpoint(tmp_path):
    import numpy as np

    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_file({"weight": np.zeros((2, 2), dtype=np.float16)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def made_by_modelopt(checkpoint, quant_algo, kv_cache=None):
    said = {"quantization": {"quant_algo": quant_algo, "kv_cache_quant_algo": kv_cache}}
    (checkpoint / "hf_quant_config.json").write_text(json.dumps(said))


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_that_keeps_its_format_passes_through(kind, checkpoint, out):
    metrics = engine_for(kind).quantize(checkpoint, asked(kind), out, calibration=[], perplexity_texts=[])

    assert {file.name: file.read_bytes() for file in out.iterdir()} == {
        file.name: file.read_bytes() for file in checkpoint.iterdir()
    }
    assert metrics["weights_bytes"] == metrics["source_bytes"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_is_the_checkpoint_and_what_it_says(kind, checkpoint, out):
    made_by_modelopt(checkpoint, "FP8", "FP8")

    description = engine_for(kind).build(checkpoint, asked(kind, "fp8", "fp8"), out)

    assert description["quantization"] == {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    assert (out / "model.safetensors").stat().st_ino == (checkpoint / "model.safetensors").stat().st_ino
    assert json.loads((out / "engine.json").read_text()) == description


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("made", "words"),
    [
        (("NVFP4", None), "quant_algo is 'NVFP4', expected 'FP8'"),
        (("FP8", "FP8"), "kv_cache_quant_algo is 'FP8', expected None"),
    ],
)
def test_a_checkpoint_in_another_format_than_the_asked_one_is_refused(kind, checkpoint, out, made, words):
    made_by_modelopt(checkpoint, *made)

    with pytest.raises(InputError, match=words):
        engine_for(kind).build(checkpoint, asked(kind, "fp8"), out)


@pytest.mark.parametrize("kind", KINDS)
def test_templates_get_limits_ranks_and_the_chosen_gpus(kind, checkpoint, out):
    settings = asked(kind)
    engine_for(kind).build(checkpoint, settings, out)

    values = engine_for(kind).template_values(out, settings)

    assert (values["max_batch_size"], values["tensor_parallel"], values["gpus"]) == (8, 1, [])
    assert values["kv_cache"] == "auto"
    assert values["chat_template"] == "none"


def test_options_reach_vllm(checkpoint, out):
    settings = asked("vllm", options={"enforce_eager": True, "kv_cache_fraction": 0.5})
    engine_for("vllm").build(checkpoint, settings, out)

    values = engine_for("vllm").template_values(out, settings)

    assert values["options"]["enforce_eager"] is True
    assert values["kv_cache_fraction"] == 0.5
