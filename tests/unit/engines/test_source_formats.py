"""What a checkpoint that is already quantized is called, by quantization_config of its config.json."""

import pytest

from slipway.tasks.contracts.spec.gpu_formats import AS_IT_IS
from slipway.tasks.engines.preflight.source_formats import name_of

NAMES = {row.format for row in AS_IT_IS}


def compressed(weights, inputs=None, layout="float-quantized", **more):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": {"group_0": group, **more}}


FLOAT8, INT8, INT4 = {"type": "float", "num_bits": 8}, {"type": "int", "num_bits": 8}, {"type": "int", "num_bits": 4}
FLOAT4 = {"type": "float", "num_bits": 4}


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "awq"),
        ({"quant_method": "awq", "w_bit": 4}, "awq"),
        ({"quant_method": "gptq", "bits": 4, "sym": True, "desc_act": False}, "gptq"),
        ({"quant_method": "gptq", "bits": 8, "sym": True}, "gptq"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, "fp8 in blocks"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4"),
        (compressed(FLOAT8, FLOAT8), "compressed-tensors fp8"),
        (compressed(FLOAT8), "compressed-tensors fp8"),
        (compressed(INT8, INT8, "int-quantized"), "compressed-tensors int8"),
        (compressed(INT4, None, "pack-quantized"), "compressed-tensors weights"),
        (compressed(FLOAT4, FLOAT4, "nvfp4-pack-quantized"), "compressed-tensors nvfp4"),
    ],
)
def test_a_format_that_some_engine_kind_serves_has_the_name_of_its_row(stated, name):
    assert name_of(stated) == name
    assert name in NAMES


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "gptq", "bits": 4, "sym": False}, "gptq of 4 bits, asymmetric"),
        ({"quant_method": "gptq", "bits": 3, "sym": True}, "gptq of 3 bits, symmetric"),
        ({"quant_method": "awq", "bits": 8}, "awq of 8 bits"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "fp8 in blocks of [64, 64]"),
        ({}, "quantization_config without quant_method"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors without config_groups"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": 1}},
            "compressed-tensors None (None of None bits)",
        ),
        (
            compressed(INT4, FLOAT8, "pack-quantized"),
            "compressed-tensors pack-quantized (int of 4 bits, activations float of 8 bits)",
        ),
        (
            compressed(FLOAT8, FLOAT8, group_1={"weights": INT4, "format": "pack-quantized"}),
            "compressed-tensors fp8 and weights",
        ),
    ],
)
def test_a_format_that_none_serves_is_called_by_what_sets_it_apart_and_has_no_row(stated, name):
    assert name_of(stated) == name
    assert name not in NAMES
