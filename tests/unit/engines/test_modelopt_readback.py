"""What a quantized checkpoint stands for, and which ones ModelOpt is never asked to make."""

import json

import numpy as np
import pytest

from tasks.contracts.errors import InputError, PipelineError
from tasks.contracts.spec import FORMATS_BY_ENGINE
from tasks.engines.modelopt_ptq import RECIPES, quantize_with_modelopt
from tasks.engines.modelopt_readback import dequantized, digest_of, read_back

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

    with pytest.raises(PipelineError, match="says quant_algo W8A16"):
        read_back(folder, "FP8", "none")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_scale_that_no_weight_can_have_is_refused(tmp_path, value):
    folder = written(tmp_path, {"a.weight_scale": torch.tensor(value)})

    with pytest.raises(InputError, match=r"a\.weight_scale holds values that are no finite numbers"):
        read_back(folder, "FP8", "none")


def test_a_checkpoint_without_any_scale_was_not_quantized(tmp_path):
    with pytest.raises(PipelineError, match="nothing was quantized"):
        read_back(written(tmp_path, {"a.weight": torch.ones(1)}), "FP8", "none")


CACHE_OF_A = {"a.k_proj.k_scale": torch.tensor(0.1), "a.v_proj.v_scale": torch.tensor(0.1)}
WEIGHTS_OF_A = {f"a.{name}.weight": torch.ones(1) for name in ("k_proj", "v_proj")}


@pytest.mark.parametrize(
    ("stored", "missing"),
    [
        ({}, r"no \*\.k_scale \(of 2\)"),
        ({"a.k_proj.k_scale": torch.tensor(0.1)}, r"no \*\.v_scale \(of 1\)"),
        ({**CACHE_OF_A, **WEIGHTS_OF_A, "b.v_proj.weight": torch.ones(1)}, r"no b\.v_proj\.v_scale"),
    ],
)
def test_a_cache_that_was_asked_in_8_bits_has_a_scale_for_all_keys_and_values(tmp_path, stored, missing):
    folder = written(tmp_path, {"a.weight_scale": torch.tensor(1.0), **stored}, "W8A16", "FP8")

    with pytest.raises(PipelineError, match=missing):
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


def test_every_format_that_a_hugging_face_checkpoint_is_served_in_has_a_recipe():
    asked = (FORMATS_BY_ENGINE["llmapi"] | FORMATS_BY_ENGINE["vllm"]) - {"none"}

    assert asked <= RECIPES.keys()


def test_one_table_of_names_agrees_with_the_other():
    from tasks.engines.hf_checkpoint import QUANT_ALGO

    assert {name: RECIPES[name].algorithm for name in QUANT_ALGO} == QUANT_ALGO


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"format_": "none"}, "found format none"),
        ({"format_": "int4_wo"}, "found format int4_wo"),
        ({"format_": "nvfp4"}, "GPUs alone"),
        ({"format_": "fp8", "kv_cache": "int8"}, "kv_cache int8 is a trt-engine's"),
        ({"format_": "int4_awq", "texts": []}, "calibrates on texts, found none"),
        ({"format_": "int8_wo", "texts": [], "kv_cache": "fp8"}, "int8_wo with kv_cache fp8 calibrates"),
    ],
)
def test_what_modelopt_cannot_make_is_refused_before_anything_is_loaded(tmp_path, asked, words):
    asked = {"texts": ["a"], "device": "cpu", "out": tmp_path, **asked}

    with pytest.raises(InputError, match=words):
        quantize_with_modelopt(tmp_path / "absent", **asked)


@pytest.mark.parametrize(
    ("stated", "named"), [({"quant_method": "awq"}, "awq"), ({"quant_method": "modelopt", "quant_algo": "FP8"}, "FP8")]
)
def test_a_checkpoint_that_is_quantized_already_is_refused(tmp_path, stated, named):
    config = {"architectures": ["LlamaForCausalLM"], "quantization_config": stated}
    (tmp_path / "config.json").write_text(json.dumps(config))

    with pytest.raises(InputError, match=rf"quantized already \({named}\)"):
        quantize_with_modelopt(tmp_path, "fp8", ["a"], tmp_path, device="cpu")
