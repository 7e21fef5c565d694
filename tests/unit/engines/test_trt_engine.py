"""From a checkpoint to engines by TensorRT-LLM's tools, which here only move files; what they say is read back."""

import json

import pytest
from safetensors.numpy import save_file

from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.trtllm.maker import TrtMaker
from slipway.tasks.engines.trtllm.readback import check_positions
from slipway.tasks.engines.trtllm.vocabulary import VOCABULARY
from tests.fakes.releases import SPEC, spec
from tests.fakes.servers.tensorrt_llm_tools import install
from tests.fixtures.odd_checkpoints import FORMS, LLAMA3, config_of
from tests.support.refused import refused

CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl", "samples": 3, "max_tokens": 64}
TEXTS = ["one", "two", "three"]
SM = {"NVIDIA-A10G": "86", "NVIDIA-L4": "89", "NVIDIA-B200": "100"}


def asked(quantization="int4_awq", kv_cache="none", gpu="NVIDIA-L4", serving=None, **engine):
    settings = {**SPEC["engine"], "kind": "trt-engine", "gpu": gpu, **engine}
    calibration = CALIBRATION if quantization != "none" else None
    return spec(
        quantization={"format": quantization, "kv_cache": kv_cache, "calibration": calibration},
        engine=settings,
        serving=serving or {},
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
        monkeypatch.setenv("SM", SM[spec.engine.gpu])
        monkeypatch.setenv("GPUS", str(gpus))
        engine = TrtMaker(examples=[tmp_path / "nowhere", examples], gpus=lambda: gpus)
        quantized, out = tmp_path / "quantized", tmp_path / "engine"
        quantized.mkdir()
        out.mkdir()
        engine.quantize(checkpoint, spec, quantized, Texts(calibration=texts))
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
    ("architecture", "written", "dtype"),
    [
        ("Gemma2ForCausalLM", {"torch_dtype": "bfloat16"}, "bfloat16"),
        ("DeepseekV2ForCausalLM", {"torch_dtype": "bfloat16"}, "bfloat16"),
        ("DeepseekV2ForCausalLM", {}, "float16"),
    ],
)
def test_a_script_with_flags_of_its_own_converts_as_the_others_do(make, checkpoint, architecture, written, dtype):
    (checkpoint / "config.json").write_text(json.dumps({"architectures": [architecture], **written}))

    out, description = make(asked("none", tensor_parallel=2))

    assert description["mapping"]["tp_size"] == 2
    assert json.loads((out / "config.json").read_text())["pretrained_config"]["dtype"] == dtype


@pytest.mark.parametrize("quantization", ["none", "fp8"])
def test_code_that_a_checkpoint_names_is_not_shown_to_tools_that_would_import_it(make, checkpoint, quantization):
    """They trust remote code: transformers would import files that are not there, or fetch another repository's."""
    own_code = {"auto_map": {"AutoConfig": "org/code--configuration_phi3.Phi3Config"}}
    documents = {
        "config.json": {"architectures": ["LlamaForCausalLM"]},
        "tokenizer_config.json": {"chat_template": "{}"},
    }
    for name, document in documents.items():
        (checkpoint / name).write_text(json.dumps({**document, **own_code}))

    out, _ = make(asked(quantization))

    assert "auto_map" not in (out / "tokenizer_config.json").read_text()
    assert all(own_code.items() <= json.loads((checkpoint / name).read_text()).items() for name in documents)


def test_an_engine_of_a_groups_member_may_load_on_the_gpu_id_that_it_has(make):
    """The runtime checks max(device ids) < gpus_per_node."""
    _, description = make(asked(serving={"group": "chat", "gpus": [2]}), gpus=1)

    assert description["mapping"] == {"world_size": 1, "tp_size": 1, "pp_size": 1, "gpus_per_node": 3}


@pytest.mark.parametrize(
    ("quantization", "kv_cache", "gpu"),
    [
        ("int4_awq", "none", "NVIDIA-A10G"),
        ("int4_awq", "fp8", "NVIDIA-L4"),
        ("w4a8_awq", "fp8", "NVIDIA-L4"),
        ("fp8", "none", "NVIDIA-L4"),
        ("fp8", "fp8", "NVIDIA-L4"),
        ("int8_sq", "int8", "NVIDIA-A10G"),
        ("int8_wo", "none", "NVIDIA-A10G"),
        ("nvfp4", "fp8", "NVIDIA-B200"),
        ("none", "none", "NVIDIA-A10G"),
    ],
)
def test_formats_are_read_back_as_they_were_asked(make, quantization, kv_cache, gpu):
    _, description = make(asked(quantization, kv_cache, gpu))

    assert description["quantization"]["kv_cache_quant_algo"] == {"none": None}.get(kv_cache, kv_cache.upper())
    assert (description["quantization"]["quant_algo"] is None) == (quantization == "none")


@pytest.mark.parametrize(
    ("limits", "tokens"),
    [
        ({"max_batch_size": 4, "max_input_tokens": 512, "max_sequence_tokens": 1024}, 4096),
        ({"max_batch_size": 8, "max_input_tokens": 512, "max_sequence_tokens": 1024}, 8192),
        ({"max_batch_size": 9, "max_input_tokens": 512, "max_sequence_tokens": 1024}, 8192),
        ({"max_batch_size": 1, "max_input_tokens": 8, "max_sequence_tokens": 16}, 32),
        ({"max_batch_size": 2, "max_input_tokens": 9000, "max_sequence_tokens": 9100}, 9000),
        ({"max_batch_size": 4, "max_sequence_tokens": 1024, "options": {"max_num_tokens": 8192}}, 4096),
    ],
)
def test_a_step_holds_no_more_tokens_than_a_full_batch_and_no_less_than_a_block(make, limits, tokens):
    _, description = make(asked(**limits))

    assert description["limits"]["max_num_tokens"] == tokens


def test_templates_are_filled_from_what_was_read_back(make, tmp_path):
    spec = asked("int8_sq", "int8")
    out, _ = make(spec)

    values = TrtMaker().template_values(out, spec)

    assert values["max_batch_size"] == 8
    assert values["max_sequence_tokens"] == 256
    assert values["chat_template"] == "apply"
    assert values["paged_context"] is False
    assert values["repository_root"] == "/models/repository"
    assert values["versions"] == {"tensorrt_llm": "1.2.1"}


@pytest.mark.parametrize(
    ("spoil", "field", "found", "expected"),
    [
        ({"version": "1.1.0"}, "version", "'1.1.0'", "'1.2.1'"),
        ({"pretrained_config.mapping.tp_size": 1}, "mapping.tp_size", "1", "2"),
        ({"pretrained_config.mapping.gpus_per_node": 8}, "mapping.gpus_per_node", "8", "2"),
        ({"pretrained_config.quantization.quant_algo": "FP8"}, "quant_algo", "'FP8'", "'W4A16_AWQ'"),
        ({"build_config.max_batch_size": 2048}, "build_config.max_batch_size", "2048", "8"),
        ({"build_config.max_seq_len": 8192}, "max_seq_len", "8192", "256"),
        ({"build_config.plugin_config.use_paged_context_fmha": False}, "use_paged_context_fmha", "False", "True"),
        ({"ranks": 1}, "one file per rank", "1 files, missing or empty: rank1.engine", "2 for"),
        ({"ranks": 3}, "one file per rank", "3 files, too many: rank2.engine", "2 for"),
    ],
)
def test_an_engine_that_is_not_the_specs_is_refused_by_its_field(make, spoil, field, found, expected):
    with refused(what=field, found=found, expected=expected):
        make(asked(tensor_parallel=2), spoil=spoil)


@pytest.mark.parametrize("quantization", ["none", "fp8"])
@pytest.mark.parametrize("form", FORMS)
def test_tools_that_read_by_transformers_4_take_the_positions_of_a_config_in_any_form(
    make, checkpoint, quantization, form
):
    (checkpoint / "config.json").write_text(json.dumps(config_of("llama", form)))

    out, _ = make(asked(quantization))

    built = json.loads((out / "config.json").read_text())["pretrained_config"]
    assert (built["rotary_base"], built["rotary_scaling"]) == (500000.0, {"rope_type": "llama3", **LLAMA3})


@pytest.mark.parametrize(
    ("written", "fields"),
    [
        ({"rotary_base": 10000.0}, {"what": "rotary_base", "found": "10000.0", "expected": "500000.0"}),
        (
            {"rotary_base": 500000.0, "rotary_scaling": None},
            {"what": "rotary_scaling", "found": "null", "expected": "llama3 by 4.0"},
        ),
        ({"rotary_scaling": {"factor": 8.0}}, {"what": "rotary_scaling.factor", "found": "8.0", "expected": "4.0"}),
    ],
)
def test_a_checkpoint_with_other_positions_than_its_source_is_refused(tmp_path, written, fields):
    (tmp_path / "config.json").write_text(json.dumps(written))

    with refused(**fields):
        check_positions(config_of("llama"), tmp_path)


def test_a_tool_that_fails_is_quoted(make, checkpoint):
    (checkpoint / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "fail": True}))

    with refused(what="python3 ended with exit code 1", found="CUDA out of memory"):
        make(asked())


def test_an_image_without_the_scripts_is_refused(tmp_path, checkpoint):
    out = tmp_path / "out"
    out.mkdir()

    with refused(what="quantization/quantize.py is missing", remedy="Run this step in an image of Triton"):
        TrtMaker(examples=[tmp_path]).quantize(checkpoint, asked(), out, Texts(calibration=TEXTS))


def test_a_pod_without_a_gpu_is_refused(make):
    with refused(what="this pod has none"):
        make(asked("none"), gpus=0)


def test_a_chat_template_that_is_wanted_and_missing_is_refused_at_build_too(make, checkpoint):
    (checkpoint / "tokenizer_config.json").write_text("{}")

    with refused(what="has no chat template"):
        make(asked(options={"chat_template": "apply"}))


def test_nothing_of_the_scratch_is_left_beside_the_output(make, tmp_path):
    make(asked())

    assert {each.name for each in tmp_path.iterdir()} == {"source", "image", "quantized", "engine"}


def test_an_engine_says_how_many_ranks_share_out_its_experts(make, checkpoint):
    make(asked("none", tensor_parallel=4, expert_parallel=2))


def test_an_engine_with_its_experts_elsewhere_is_refused(make):
    spoil = {"pretrained_config.mapping.moe_ep_size": 1}
    with refused(what="moe_ep_size differs from the spec", found="1", expected="2"):
        make(asked("none", tensor_parallel=4, expert_parallel=2), spoil=spoil)


def test_the_vocabulary_is_described_beside_the_engine_on_request(make):
    out, description = make(asked("none", options={"guided_decoding_backend": "xgrammar"}))
    written = json.loads((out / VOCABULARY).read_text())

    assert description["guided_decoding_backend"] == "xgrammar"
    assert written["tokenizer_str"] == (out / "tokenizer.json").read_text()
    assert TrtMaker().template_values(out, asked("none"))["guided_decoding_backend"] == "xgrammar"


def test_without_the_option_no_vocabulary_is_described(make):
    out, description = make(asked("none"))

    assert not (out / VOCABULARY).exists()
    assert "guided_decoding_backend" not in description
    assert TrtMaker().template_values(out, asked("none"))["guided_decoding_backend"] == ""


@pytest.mark.parametrize("field", ["encoded_vocab", "tokenizer_str", "stop_token_ids"])
def test_a_vocabulary_that_the_backend_could_not_read_ends_the_build(make, monkeypatch, field):
    monkeypatch.setenv("FORGETS", field)

    with refused(what="does not describe the vocabulary", found=field):
        make(asked("none", options={"guided_decoding_backend": "xgrammar"}))
