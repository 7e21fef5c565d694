"""What a quantized checkpoint stands for, and which ones ModelOpt is never asked to make."""

import json

import numpy as np
import pytest

from slipway.tasks.contracts.engine.engine_kinds import KEPT_FORMATS, LLMAPI, VLLM
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.engines.checkpoint.config_reading import readable
from slipway.tasks.engines.checkpoint.quant_algo import QUANT_ALGO
from slipway.tasks.engines.huggingface.modelopt import RECIPES, quantize_with_modelopt
from slipway.tasks.engines.huggingface.modelopt_readback import check_same_model, dequantized, digest_of, read_back
from tests.fixtures.odd_checkpoints import FORMS, config_of
from tests.support.refused import refused

torch = pytest.importorskip("torch")


def written(folder, tensors, algorithm="FP8", cache=None):
    from safetensors.torch import save_file

    save_file(tensors, folder / "model.safetensors")
    said = {"quantization": {"quant_algo": algorithm, "kv_cache_quant_algo": cache}}
    (folder / "hf_quant_config.json").write_text(json.dumps(said))
    return folder


def packed(values):
    """Rows in pairs, the first one in the low half of a byte, as TensorRT-LLM's kernels read them."""
    pairs = np.asarray(values).reshape(-1, 2, np.shape(values)[1]) & 0x0F
    return torch.tensor((pairs[:, 0] | (pairs[:, 1] << 4)).astype(np.uint8))


def test_an_8_bit_weight_is_scaled_per_row_or_as_a_whole(tmp_path):
    folder = written(
        tmp_path,
        {
            "a.weight": torch.tensor([[1, -2], [3, 4]], dtype=torch.int8),
            "a.weight_scale": torch.tensor([0.5, 2.0]),
            "b.weight": torch.tensor([[1.0, -2.0]]).to(torch.float8_e4m3fn),
            "b.weight_scale": torch.tensor(0.25),
            "b.input_scale": torch.tensor(9.0),
            "norm.weight": torch.tensor([7.0]),
        },
    )

    found = {name: tensor.tolist() for name, tensor in dequantized(folder).items()}

    assert found == {"a.weight": [[0.5, -1.0], [6.0, 8.0]], "b.weight": [[0.25, -0.5]], "norm.weight": [7.0]}


def test_a_4_bit_weight_is_scaled_per_block_and_by_what_its_inputs_were_divided_by(tmp_path):
    values = np.array([[-8, 7, 1, 0], [2, -1, 3, -4]])
    folder = written(
        tmp_path,
        {
            "a.weight": packed(values),
            "a.weight_scale": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
            "a.weight_scale_2": torch.tensor(0.001),
            "a.pre_quant_scale": torch.tensor([1.0, 10.0, 1.0, 1.0]),
        },
        "W4A8_AWQ",
    )

    assert dequantized(folder)["a.weight"].tolist() == [[-8, 70, 2, 0], [6, -30, 12, -16]]


def test_another_format_than_asked_is_noticed(tmp_path):
    folder = written(tmp_path, {"a.weight_scale": torch.tensor(1.0)}, "W8A16")

    with refused(PipelineError, what="quant_algo", found="W8A16", expected="FP8"):
        read_back(folder, "FP8", "none")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_scale_that_no_weight_can_have_is_refused(tmp_path, value):
    folder = written(tmp_path, {"a.weight_scale": torch.tensor(value)})

    with refused(what="a.weight_scale", expected="finite numbers above zero"):
        read_back(folder, "FP8", "none")


def test_a_checkpoint_without_any_scale_was_not_quantized(tmp_path):
    with refused(PipelineError, what="nothing was quantized"):
        read_back(written(tmp_path, {"a.weight": torch.ones(1)}), "FP8", "none")


CACHE_OF_A = {"a.k_proj.k_scale": torch.tensor(0.1), "a.v_proj.v_scale": torch.tensor(0.1)}
WEIGHTS_OF_A = {f"a.{name}.weight": torch.ones(1) for name in ("k_proj", "v_proj")}


@pytest.mark.parametrize(
    ("stored", "missing"),
    [
        ({}, "2 scales of kv_cache fp8, such as *.k_scale"),
        ({"a.k_proj.k_scale": torch.tensor(0.1)}, "1 scales of kv_cache fp8, such as *.v_scale"),
        ({**CACHE_OF_A, **WEIGHTS_OF_A, "b.v_proj.weight": torch.ones(1)}, "such as b.v_proj.v_scale"),
    ],
)
def test_a_cache_that_was_asked_in_8_bits_has_a_scale_for_all_keys_and_values(tmp_path, stored, missing):
    folder = written(tmp_path, {"a.weight_scale": torch.tensor(1.0), **stored}, "W8A16", "FP8")

    with refused(PipelineError, what=missing):
        read_back(folder, "W8A16", "fp8")


@pytest.mark.parametrize("weights", [WEIGHTS_OF_A, {"a.qkv_proj.weight": torch.ones(1)}])
def test_scales_of_a_cache_are_counted(tmp_path, weights):
    folder = written(tmp_path, {"a.weight_scale": torch.tensor(1.0), **CACHE_OF_A, **weights}, "W8A16", "FP8")

    assert read_back(folder, "W8A16", "fp8")["scales"] == 3


def test_a_digest_changes_with_any_byte_of_any_file(tmp_path):
    folder = written(tmp_path, {"a.weight_scale": torch.tensor(1.0)})
    before = digest_of(folder)
    (folder / "tokenizer.json").write_text("{}")

    assert before != digest_of(folder) == digest_of(folder)


def model_of(folder, config, tensors):
    from safetensors.torch import save_file

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


BIASED = {"a.weight": torch.ones(2, 2), "a.bias": torch.ones(2), "rotary.inv_freq": torch.ones(1)}
MADE_OF_IT = {"a.weight": torch.ones(2, 2), "a.bias": torch.ones(2), "a.weight_scale": torch.ones(1)}


@pytest.mark.parametrize("form", FORMS)
def test_what_was_made_is_the_sources_model_with_its_format_added(tmp_path, form):
    source = model_of(tmp_path / "source", config_of("llama", form), BIASED)
    made = {**readable(config_of("llama", form)), "quantization_config": {"quant_algo": "FP8"}}

    check_same_model(source, model_of(tmp_path / "made", made, MADE_OF_IT))


@pytest.mark.parametrize("form", ["older", "both"])
def test_a_config_of_version_5_alone_is_not_taken_for_the_sources(tmp_path, form):
    source = model_of(tmp_path / "source", config_of("llama", form), BIASED)

    with refused(PipelineError, what="different rope.factor", found="'absent'", expected="4.0"):
        check_same_model(source, model_of(tmp_path / "made", config_of("llama", "newer"), MADE_OF_IT))


def test_a_lost_bias_is_noticed(tmp_path):
    source = model_of(tmp_path / "source", config_of("qwen2"), BIASED)
    made = {name: tensor for name, tensor in MADE_OF_IT.items() if name != "a.bias"}

    with refused(PipelineError, what="1 biases, such as a.bias", expected="all biases of the source"):
        check_same_model(source, model_of(tmp_path / "made", config_of("qwen2"), made))


def test_every_format_that_a_hugging_face_checkpoint_is_served_in_has_a_recipe():
    asked = (LLMAPI.formats | VLLM.formats) - KEPT_FORMATS

    assert asked <= RECIPES.keys()


def test_every_format_that_modelopt_makes_has_a_name():
    assert all(QUANT_ALGO[name] for name in RECIPES)


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ({"format_": "none"}, {"found": "none"}),
        ({"format_": "int4_wo"}, {"found": "int4_wo"}),
        ({"format_": "nvfp4"}, {"what": "can only be computed on a GPU"}),
        ({"format_": "fp8", "kv_cache": "int8"}, {"what": "quantization.kv_cache", "found": "int8"}),
        ({"format_": "int4_awq", "texts": []}, {"what": "calibrates on texts, and there are none"}),
        ({"format_": "fp8", "texts": [], "kv_cache": "fp8"}, {"what": "fp8 with kv_cache fp8 calibrates"}),
        ({"format_": "int8_wo"}, {"found": "int8_wo", "expected": "fp8"}),
    ],
)
def test_what_modelopt_cannot_make_is_refused_before_anything_is_loaded(tmp_path, asked, fields):
    asked = {"texts": ["a"], "device": "cpu", "out": tmp_path, **asked}

    with refused(**fields):
        quantize_with_modelopt(tmp_path / "absent", **asked)


@pytest.mark.parametrize(
    ("stated", "named"), [({"quant_method": "awq"}, "awq"), ({"quant_method": "modelopt", "quant_algo": "FP8"}, "FP8")]
)
def test_a_checkpoint_that_is_quantized_already_is_refused(tmp_path, stated, named):
    config = {"architectures": ["LlamaForCausalLM"], "quantization_config": stated}
    (tmp_path / "config.json").write_text(json.dumps(config))

    with refused(what="already quantized", found=named):
        quantize_with_modelopt(tmp_path, "fp8", ["a"], tmp_path, device="cpu")
