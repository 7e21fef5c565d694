"""A checkpoint states its format in several ways, and how wide its groups and its cache are."""

import pytest

from bench.models import records
from slipway.tasks.contracts.site.site import Site
from tests.fakes.hubs.brought_models import LLAMA, Brought, plan
from tests.support.refused import refused

A100, H100, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"
MLX = {"group_size": 64, "bits": 4}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
PACKED = {"format": "pack-quantized", "config_groups": {"group_0": {"weights": INT4}}}
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
MOE = {
    **LLAMA,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 128,
    "num_experts_per_tok": 8,
}


def of(config=LLAMA, **fields):
    return {**config, **fields}


@pytest.mark.parametrize("kind", ["vllm", "llmapi", "trt-engine", "openvino"])
def test_mlx_states_its_bits_in_a_field_of_its_own(kind):
    gpu, format_ = (None, "int8") if kind == "openvino" else (L4, "none")

    with refused(what="quantized"):
        plan(Brought(of(quantization=MLX), gib=4), kind, gpu, format_)


def test_an_older_checkpoint_of_compressed_tensors_is_served_as_a_newer_one():
    plan(Brought(of(compression_config=PACKED), gib=4), "vllm", L4)
    with refused(what="already quantized"):
        plan(Brought(of(compression_config=PACKED), gib=4), "llmapi", L4)


def in_fp8(**fields):
    groups = {"group_0": {"targets": ["Linear"], "weights": FLOAT8}}
    return of(quantization_config={"quant_method": "compressed-tensors", "config_groups": groups, **fields})


@pytest.mark.parametrize(
    ("ignored", "named"),
    [
        (["model.layers.3.self_attn.q_proj"], "ignores q_proj of model.layers.3.self_attn without k_proj, v_proj"),
        (["re:.*mlp.gate_proj$"], "gate_proj of model.layers.N.mlp without up_proj"),
    ],
)
def test_a_layer_that_vllm_fuses_is_quantized_whole_or_not_at_all(ignored, named):
    whole = [f"model.layers.3.self_attn.{part}_proj" for part in "qkv"]

    plan(Brought(in_fp8(ignore=["lm_head", "re:.*down_proj", *whole])), "vllm", H100)
    with refused(what="as one layer", found=named):
        plan(Brought(in_fp8(ignore=ignored)), "vllm", H100)


def test_an_expression_that_could_be_slow_to_match_is_not_tried():
    plan(Brought(in_fp8(ignore=["re:(.*a)*q_proj"])), "vllm", H100)


def test_sparse_layers_are_not_served():
    sparsity = {"format": "sparse-24-bitmask", "targets": ["Linear"]}

    plan(Brought(in_fp8(sparsity_config={"format": "dense", "targets": []})), "vllm", H100)
    with refused(what="with sparsity"):
        plan(Brought(in_fp8(sparsity_config=sparsity)), "vllm", H100)


@pytest.mark.parametrize("method", ["torchao", "quark", "bitsandbytes"])
def test_a_method_without_a_row_is_refused_by_its_name(method):
    with refused(what=f"format {method}"):
        plan(Brought(of(quantization_config={"quant_method": method}), gib=4), "vllm", L4)


@pytest.mark.parametrize(
    ("stated", "beside"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, None),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"type": "float", "num_bits": 8}},
            None,
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}),
        (None, {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}),
        ({"quant_method": "compressed-tensors", **PACKED, "kv_cache_scheme": {"type": "float", "num_bits": 8}}, None),
    ],
)
def test_the_cache_that_a_checkpoint_asks_for_must_run_on_the_gpu(stated, beside):
    documents = {"hf_quant_config.json": {"quantization": beside}} if beside else {}
    config = of(quantization_config=stated) if stated else LLAMA
    model = Brought(config, gib=6, documents=documents)

    plan(model, "vllm", H100)
    with refused(what="asks for a KV cache in fp8 does not run on NVIDIA-A100"):
        plan(model, "vllm", A100)


def test_a_cache_that_is_stated_is_as_small_as_it_says():
    stated = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    long = {"max_sequence_tokens": 131_072, "max_input_tokens": 8192, "max_batch_size": 1}
    model = Brought(of(quantization_config=stated), gib=8)

    plan(model, "vllm", L4, **long)
    with refused(what="KV cache 16.0"):
        plan(Brought(of(quantization_config={**stated, "kv_cache_quant_algo": None}), gib=8), "vllm", L4, **long)


@pytest.mark.parametrize("algorithm", ["FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "fp8_pb_wo", "W4A16_NVFP4", "MXFP8"])
def test_newer_formats_of_modelopt_are_served_where_vllm_has_them(algorithm):
    plan(Brought(of(quantization_config={"quant_method": "modelopt", "quant_algo": algorithm}), gib=8), "vllm", L4)


def test_a_format_of_modelopt_that_an_older_vllm_lacks_is_refused_there():
    site = records.site().model_dump(mode="json")
    site["images"]["serving"]["vllm"] = f"example.com/tasks-gpu:0.1.0-26.05-vllm@sha256:{'d' * 64}"
    stated = {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}

    with refused(what="vLLM 0.19.0", found="W4A16_NVFP4"):
        plan(Brought(of(quantization_config=stated), gib=8), "vllm", L4, site=Site.model_validate(site))


GROUPS = [
    {"quant_method": "awq", "bits": 4, "group_size": 128},
    {"quant_method": "gptq", "bits": 4, "sym": True, "group_size": 128},
    {"quant_method": "compressed-tensors", **PACKED},
    {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": {"weights": FLOAT8, "input_activations": {"num_bits": 8, "type": "float"}}},
    },
    {"quant_method": "fp8", "weight_block_size": [128, 128]},
]


@pytest.mark.parametrize("stated", GROUPS)
def test_ranks_must_not_divide_weights_that_share_a_scale(stated):
    model = Brought(of(MOE, moe_intermediate_size=1536, quantization_config=stated), gib=30)

    plan(model, "vllm", H100, tensor_parallel=4)
    with refused(found="an expert of 1536, 192 on each rank", expected="a multiple of 128", remedy="tensor_parallel 4"):
        plan(model, "vllm", H100, tensor_parallel=8)


def test_a_scale_for_a_whole_channel_may_be_divided():
    stated = {"quant_method": "gptq", "bits": 4, "sym": True, "group_size": -1}

    plan(
        Brought(of(MOE, moe_intermediate_size=1536, quantization_config=stated), gib=30),
        "vllm",
        H100,
        tensor_parallel=8,
    )


def in_modelopt(algorithm="NVFP4", **fields):
    return of(quantization_config={"quant_method": "modelopt", "quant_algo": algorithm, "group_size": 16, **fields})


def stated(method, **fields):
    return of(quantization_config={"quant_method": method, **fields})


GPTQ = {"bits": 4, "group_size": 128, "sym": True, "desc_act": False}
AWQ = {"bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
Q = "model.layers.3.self_attn.q_proj"
WHOLE = [f"model.layers.3.self_attn.{part}_proj" for part in "qkv"]
EACH = {layer: {"quant_algo": "FP8"} for layer in WHOLE}


@pytest.mark.parametrize(
    ("config", "gpu", "named"),
    [
        (stated("fp8", activation_scheme="dynamic", ignored_layers=[Q]), H100, "leaves out q_proj of"),
        (stated("fp8", activation_scheme="dynamic", modules_to_not_convert=[Q]), H100, "leaves out q_proj of"),
        (stated("awq", **AWQ, modules_to_not_convert=["q_proj"]), L4, "leaves out q_proj of"),
        (stated("gptq", **GPTQ, dynamic={r"-:.*\.q_proj": {}}), L4, r"has dynamic -:.*\.q_proj for q_proj of"),
        (stated("gptq", **GPTQ, dynamic={r"+:.*\.up_proj": {"bits": 8}}), L4, "for up_proj of model.layers.N.mlp"),
        (stated("gptq", **GPTQ, modules_in_block_to_quantize=[["self_attn.q_proj"]]), L4, "quantizes q_proj of"),
        (in_modelopt(ignore=["lm_head", Q]), H100, "excludes q_proj of model.layers.3.self_attn without k_proj"),
        (in_modelopt(ignore=["*.self_attn.q_proj"]), H100, "excludes q_proj of model.layers.N.self_attn without"),
        (in_modelopt(ignore=[f"*.self_attn.{part}_proj" for part in "qkv"]), H100, "and vLLM looks for qkv_proj"),
        (in_modelopt("MIXED_PRECISION", quantized_layers={Q: {"quant_algo": "FP8"}}), H100, "has FP8 for q_proj of"),
        (
            in_modelopt("MIXED_PRECISION", quantized_layers=EACH | {Q: {"quant_algo": "NVFP4"}}),
            H100,
            "has FP8 for k_proj, v_proj of model.layers.3.self_attn without q_proj",
        ),
    ],
)
def test_every_method_says_the_same_of_all_parts_of_a_fused_layer(config, gpu, named):
    with refused(what="as one layer", found=named):
        plan(Brought(config, gib=6), "vllm", gpu)


@pytest.mark.parametrize(
    ("config", "gpu"),
    [
        (stated("fp8", activation_scheme="dynamic", ignored_layers=["lm_head", *WHOLE]), H100),
        (stated("awq", **AWQ, modules_to_not_convert=["self_attn", "lm_head"]), L4),
        (stated("awq", **AWQ | {"version": "exllama"}), L4),
        (stated("gptq", **GPTQ, dynamic={r"-:.*\.self_attn.*": {}, r"+:.*\.mlp.*": {"bits": 8}}), L4),
        (stated("gptq", **GPTQ, dynamic={r"+:.*\.q_proj": {"bits": 4}}), L4),
        (stated("gptq", **GPTQ, checkpoint_format="gptq_v2"), L4),
        (in_modelopt(ignore=["lm_head", "model.layers.0.self_attn*", "*.self_attn.qkv_proj", *WHOLE]), H100),
        (in_modelopt("MIXED_PRECISION", quantized_layers=EACH), H100),
    ],
)
def test_what_is_said_of_whole_layers_is_served(config, gpu):
    plan(Brought(config, gib=6), "vllm", gpu)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (stated("awq", **AWQ | {"version": "gemv"}), "awq in layout gemv"),
        (stated("gptq", **GPTQ, checkpoint_format="marlin"), "gptq in layout marlin"),
        (stated("gptq", **GPTQ, dynamic={".*": {"bits": 3}}), "gptq of 3 bits"),
        (stated("gptq", **GPTQ, dynamic={".*": {"sym": False}}), "gptq of 4 bits, asymmetric"),
    ],
)
def test_a_layout_or_a_width_that_vllm_does_not_read_is_refused(config, named):
    with refused(what=named):
        plan(Brought(config, gib=6), "vllm", L4)


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ({Q: {"quant_algo": "MXFP8"}}, "MXFP8"),
        ({Q: {"quant_algo": "W4A8_AWQ"}}, "W4A8_AWQ"),
        ({}, "none for any layer"),
    ],
)
def test_a_format_of_single_layers_that_vllm_would_take_for_16_bits_is_refused(layers, found):
    whole = {name: each for name in WHOLE for each in layers.values()}

    with refused(what="formats of single layers", found=found, expected="FP8, NVFP4, W4A16_NVFP4"):
        plan(Brought(in_modelopt("MIXED_PRECISION", quantized_layers=whole)), "vllm", H100)


OF_FP8 = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "format": "float-quantized"}
OF_NVFP4 = {"weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group"}, "format": "nvfp4-pack-quantized"}


def in_groups(first, second, **fields):
    """Two groups of layers, each in a format of its own."""
    groups = {"group_0": {"targets": first, **OF_FP8}, "group_1": {"targets": second, **OF_NVFP4}}
    return stated("compressed-tensors", config_groups=groups, format="mixed-precision", **fields)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["re:.*self_attn.*"], ["re:.*mlp.*"]),
        (["Linear"], ["re:.*mlp.*"]),
        (WHOLE, ["re:.*mlp.*"]),
        (["Linear"], ["re:.*down_proj"]),
        ([*WHOLE, "lm_head"], ["re:.*mlp.*"]),
    ],
)
def test_groups_of_layers_in_several_formats_are_served(first, second):
    plan(Brought(in_groups(first, second, ignore=["lm_head"]), gib=6), "vllm", H100)


def test_every_format_of_several_groups_has_to_be_served():
    with refused(what="format compressed-tensors fp8"):
        plan(Brought(in_groups(["re:.*self_attn.*"], ["re:.*mlp.*"]), gib=6), "llmapi", H100)
    with refused(what="format compressed-tensors int8"):
        config = in_groups(["re:.*self_attn.*"], ["re:.*mlp.*"])
        int8 = {"num_bits": 8, "type": "int"}
        config["quantization_config"]["config_groups"]["group_0"] |= {"weights": int8, "input_activations": int8}
        plan(Brought(config, gib=6), "vllm", "NVIDIA-B200")


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (["Linear"], ["re:.*q_proj"], "has a group for q_proj of model.layers.N.self_attn without k_proj, v_proj"),
        (["Linear"], WHOLE, "has a group for q_proj, k_proj, v_proj of model.layers.3.self_attn, and vLLM looks for"),
        (["re:.*gate_proj"], ["re:.*up_proj"], "has a group for gate_proj of model.layers.N.mlp without up_proj"),
    ],
)
def test_a_group_has_all_parts_of_a_fused_layer(first, second, named):
    with refused(what="as one layer", found=named):
        plan(Brought(in_groups(first, second), gib=6), "vllm", H100)


def indexed(config, *names):
    """The checkpoint whose index has these tensors."""
    files = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    index = {name: files[number % 2] for number, name in enumerate(names)} | {"model.norm.weight": files[1]}
    return Brought(config, gib=6, documents={"model.safetensors.index.json": {"weight_map": index}})


UP, GATE = "model.layers.2.mlp.up_proj", "model.layers.2.mlp.gate_proj"
PLAIN = ("model.layers.3.mlp.up_proj.weight", "model.layers.3.mlp.gate_proj.weight")
PACKED_UP = (f"{UP}.weight_packed", f"{UP}.weight_scale", f"{GATE}.weight_packed", *PLAIN)
WITH_SCALES = (f"{UP}.weight", f"{UP}.weight_scale", f"{GATE}.weight", f"{GATE}.weight_scale", *PLAIN)
NVFP4 = {"group_0": {"targets": ["Linear"], **OF_NVFP4}}
BOTH = ["model.layers.3.mlp.up_proj", "model.layers.3.mlp.gate_proj"]
NEXT = {
    **MOE,
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
}
OLD_NAMES = [f"model.layers.0.linear_attn.in_proj_{part}" for part in ("qkv", "z", "b", "a")]


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        (stated("compressed-tensors", config_groups=NVFP4, ignore=["lm_head"]), PACKED_UP),
        (in_modelopt(ignore=["lm_head"]), WITH_SCALES),
        (stated("fp8", activation_scheme="dynamic", ignored_layers=["lm_head"]), WITH_SCALES),
    ],
)
def test_layers_in_16_bits_that_nothing_leaves_out_are_refused_by_the_index(config, tensors):
    with refused(what="layers in 16 bits", found="2 of them, the first model.layers.3.mlp.gate"):
        plan(indexed(config, *tensors), "vllm", H100)


def test_layers_that_are_left_out_under_older_names_are_refused_by_the_index():
    fused = ("model.layers.0.linear_attn.in_proj_qkvz.weight", "model.layers.0.linear_attn.in_proj_ba.weight")
    quantized = {"quant_method": "compressed-tensors", "config_groups": NVFP4, "ignore": OLD_NAMES}

    with refused(what="layers in 16 bits", found="2 of them"):
        plan(indexed({**NEXT, "quantization_config": quantized}, f"{UP}.weight_packed", *fused), "vllm", H100)


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        (stated("compressed-tensors", config_groups=NVFP4, ignore=BOTH), PACKED_UP),
        (stated("compressed-tensors", config_groups=NVFP4, ignore=["re:.*layers.3.mlp.*"]), PACKED_UP),
        (stated("compressed-tensors", config_groups=NVFP4, ignore=["model.layers.3.mlp.gate_up_proj"]), PACKED_UP),
        (
            stated(
                "compressed-tensors", config_groups={"g": {**OF_NVFP4, "targets": ["re:.*layers.2.*"]}}, ignore=["a"]
            ),
            PACKED_UP,
        ),
        (in_modelopt(ignore=["model.layers.3.mlp*"]), WITH_SCALES),
        (in_modelopt(ignore=["lm_head"]), WITH_SCALES[:4]),
        (
            stated("compressed-tensors", config_groups=NVFP4, ignore=["lm_head"]),
            (f"{UP}.weight_packed", "model.layers.32.mlp.up_proj.weight", "model.visual.layers.0.mlp.up_proj.weight"),
        ),
    ],
)
def test_layers_that_are_left_out_predict_or_see_are_taken(config, tensors):
    plan(indexed(config, *tensors), "vllm", H100)
