"""From a checkpoint to engines by TensorRT-LLM's tools, which here only move files; what they say is read back."""

import json

import pytest
from safetensors.numpy import save_file

from tasks.contracts.errors import InputError
from tasks.engines.trt_engine import TrtEngine
from tests.fakes.releases import SPEC, spec
from tests.fakes.tensorrt_llm_tools import install

CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl", "samples": 3, "max_tokens": 64}
TEXTS = ["one", "two", "three"]


def asked(quantization="int4_awq", kv_cache="none", **engine):
    settings = {**SPEC["engine"], "kind": "trt-engine", "gpu": "NVIDIA-A10G", **engine}
    calibration = CALIBRATION if quantization != "none" else None
    return spec(
        quantization={"format": quantization, "kv_cache": kv_cache, "calibration": calibration}, engine=settings
    )


@pytest.fixture
def checkpoint(tmp_path):
    import numpy as np

    folder = tmp_path / "source"
    folder.mkdir()
    save_file({"weight": np.zeros((2, 2), dtype=np.float16)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    return folder


@pytest.fixture
def make(tmp_path, checkpoint, monkeypatch):
    """Quantize and build; the folder of the engine, and what was read back."""
    examples, programs = install(tmp_path / "image")
    monkeypatch.setenv("PATH", str(programs), prepend=":")

    def run(spec, gpus=4, texts=TEXTS, spoil=None):
        engine = TrtEngine(examples=[tmp_path / "nowhere", examples], gpus=lambda: gpus)
        quantized, out = tmp_path / "quantized", tmp_path / "engine"
        quantized.mkdir()
        out.mkdir()
        engine.quantize(checkpoint, spec, quantized, calibration=texts, perplexity_texts=[])
        if spoil:
            monkeypatch.setenv("SPOIL", json.dumps(spoil))
        return out, engine.build(quantized, spec, out)

    return run


def test_one_engine_per_rank_lies_beside_its_tokenizer(make):
    out, description = make(asked("none", tensor_parallel=4, pipeline_parallel=2))

    names = {file.name for file in out.iterdir()}
    assert {f"rank{rank}.engine" for rank in range(8)} < names
    assert {"config.json", "engine.json", "tokenizer.json", "tokenizer_config.json"} < names
    assert not any(name.endswith(".safetensors") for name in names)
    assert description["mapping"] == {"world_size": 8, "tp_size": 4, "pp_size": 2, "gpus_per_node": 4}


@pytest.mark.parametrize(
    ("quantization", "kv_cache"),
    [
        ("int4_awq", "none"),
        ("fp8", "fp8"),
        ("int8_sq", "int8"),
        ("int8_wo", "none"),
        ("nvfp4", "fp8"),
        ("none", "none"),
    ],
)
def test_formats_are_read_back_as_they_were_asked(make, quantization, kv_cache):
    _, description = make(asked(quantization, kv_cache))

    assert description["quantization"]["kv_cache_quant_algo"] == {"none": None}.get(kv_cache, kv_cache.upper())
    assert (description["quantization"]["quant_algo"] is None) == (quantization == "none")


def test_templates_are_filled_from_what_was_read_back(make, tmp_path):
    spec = asked("int8_sq", "int8")
    out, _ = make(spec)

    values = TrtEngine().template_values(out, spec)

    assert values["max_batch_size"] == 8
    assert values["max_sequence_tokens"] == 256
    assert values["chat_template"] == "apply"
    assert values["paged_context"] is False
    assert values["repository_root"] == "/models/repository"
    assert values["versions"] == {"tensorrt_llm": "1.2.1"}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ({"version": "1.1.0"}, r"version is '1\.1\.0', expected '1\.2\.1'"),
        ({"pretrained_config.mapping.tp_size": 1}, "mapping.tp_size is 1, expected 2"),
        ({"pretrained_config.mapping.gpus_per_node": 8}, "gpus_per_node is 8, expected 2"),
        ({"pretrained_config.quantization.quant_algo": "FP8"}, "quant_algo is 'FP8', expected 'W4A16_AWQ'"),
        ({"build_config.max_batch_size": 2048}, "build_config.max_batch_size is 2048, expected 8"),
        ({"build_config.max_seq_len": 8192}, "max_seq_len is 8192, expected 256"),
        (
            {"build_config.plugin_config.use_paged_context_fmha": False},
            "use_paged_context_fmha is False, expected True",
        ),
        ({"ranks": 1}, r"1 rank files, expected 2 .*missing or empty: rank1\.engine"),
        ({"ranks": 3}, r"3 rank files, expected 2 .*too many: rank2\.engine"),
    ],
)
def test_an_engine_that_is_not_the_one_that_was_asked_for_is_refused_by_its_field(make, spoil, words):
    with pytest.raises(InputError, match=words):
        make(asked(tensor_parallel=2), spoil=spoil)


def test_a_tool_that_fails_is_quoted(make, checkpoint):
    (checkpoint / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "fail": True}))

    with pytest.raises(InputError, match=r"python3 ended with exit code 1, expected 0.*CUDA out of memory"):
        make(asked())


def test_an_image_without_the_scripts_is_refused(tmp_path, checkpoint):
    out = tmp_path / "out"
    out.mkdir()

    with pytest.raises(
        InputError, match=r"quantization/quantize\.py is in none of .*Run this step in an image of Triton"
    ):
        TrtEngine(examples=[tmp_path]).quantize(checkpoint, asked(), out, calibration=TEXTS, perplexity_texts=[])


def test_a_pod_without_a_gpu_is_refused(make):
    with pytest.raises(InputError, match="this pod sees none"):
        make(asked(), gpus=0)


def test_a_chat_template_that_is_wanted_and_missing_is_refused_at_build_too(make, checkpoint):
    (checkpoint / "tokenizer_config.json").write_text("{}")

    with pytest.raises(InputError, match="has no chat template"):
        make(asked(options={"chat_template": "apply"}))


def test_nothing_of_the_scratch_is_left_beside_the_output(make, tmp_path):
    make(asked())

    assert {each.name for each in tmp_path.iterdir()} == {"source", "image", "quantized", "engine"}
