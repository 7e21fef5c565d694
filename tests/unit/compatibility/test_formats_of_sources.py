"""Which checkpoints llmapi and vllm serve as they are, in which formats, on which GPU."""

import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.step_needs import needs_gpu
from slipway.tasks.contracts.site.site import Site
from tests.fakes.documents.gpu_planning import REPO, SITE, WITHOUT_MODELOPT, asked, plan
from tests.fakes.hubs.public_hub import MODELS
from tests.support.refused import refused

SEVERAL_PARTS = [
    {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3"},
    {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4"},
    {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"},
    {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vision_config": {"hidden_size": 1}},
]


@pytest.mark.parametrize("config", SEVERAL_PARTS)
@pytest.mark.parametrize("kind", ["llmapi", "vllm"])
def test_a_model_of_several_parts_is_not_quantized_but_served_as_it_is(kind, config):
    plan(asked(kind), **config)
    with refused(what="AutoModelForCausalLM", found=config["architectures"][0], remedy="format none"):
        plan(asked(kind, "fp8"), **config)


@pytest.mark.parametrize("kind", ["llmapi", "vllm"])
def test_a_cache_in_fp8_beside_unquantized_weights_needs_no_texts_no_modelopt_and_no_gpu_to_make(kind):
    spec = asked(kind, kv_cache="fp8")

    (warning,) = plan(spec, WITHOUT_MODELOPT)

    assert spec.quantization.calibration is None
    assert not needs_gpu("quantize", spec)
    assert "stored with scale 1.0" in warning


@pytest.mark.parametrize("kind", ["llmapi", "vllm"])
def test_a_cache_in_fp8_beside_quantized_weights_is_calibrated_as_before(kind):
    spec = asked(kind, "fp8", kv_cache="fp8")

    assert plan(spec) == ()
    assert needs_gpu("quantize", spec)


def test_weights_that_vllm_quantizes_as_it_loads_them_need_no_modelopt_and_no_gpu_to_make():
    spec = asked("vllm", "fp8_online")

    assert plan(spec, WITHOUT_MODELOPT) == ()
    assert not needs_gpu("quantize", spec)


def test_a_checkpoint_that_is_already_quantized_is_not_quantized_as_it_is_loaded():
    with refused(what="already quantized", found="awq", expected="16-bit weights for format fp8_online"):
        plan(asked("vllm", "fp8_online"), quantization_config={"quant_method": "awq", "bits": 4})


def test_a_checkpoint_that_is_already_quantized_is_refused_as_such_on_a_gpu_that_cannot_quantize():
    with refused(what="already quantized", found="fp8", remedy="format none"):
        plan(asked("vllm", "nvfp4", gpu="NVIDIA-A10G"), quantization_config=BLOCKS)


def test_other_kinds_do_not_quantize_as_they_load():
    with pytest.raises(ValueError, match="engine llmapi cannot serve format fp8_online"):
        asked("llmapi", "fp8_online")


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
GPTQ = {"quant_method": "gptq", "bits": 4, "sym": True}
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MXFP4 = {"quant_method": "mxfp4"}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "config_groups": {
        "group_0": {"weights": {"type": "int", "num_bits": 8}, "input_activations": {"type": "int", "num_bits": 8}}
    },
}


@pytest.mark.parametrize(
    ("kind", "stated", "gpu"),
    [
        ("vllm", AWQ, "Tesla-T4"),
        ("vllm", AWQ, "NVIDIA-GB10"),
        ("vllm", GPTQ, "NVIDIA-A10G"),
        ("vllm", BLOCKS, "NVIDIA-H100"),
        ("vllm", MXFP4, "NVIDIA-RTX-PRO-6000"),
        ("vllm", COMPRESSED, "NVIDIA-H100"),
        ("llmapi", BLOCKS, "NVIDIA-B200"),
        ("llmapi", MXFP4, "NVIDIA-GB10"),
    ],
)
def test_a_checkpoint_of_another_quantizer_is_served_as_it_is_where_a_source_says_so(kind, stated, gpu):
    spec = asked(kind, gpu=gpu, tensor_parallel=2)

    assert plan(spec, quantization_config=stated, torch_dtype="float16") == ()


@pytest.mark.parametrize(
    ("kind", "stated", "gpu"),
    [("vllm", BLOCKS, "NVIDIA-A10G"), ("vllm", MXFP4, "NVIDIA-L4"), ("llmapi", MXFP4, "NVIDIA-H100")],
)
def test_a_format_that_the_gpu_only_stores_weights_in_is_warned_of(kind, stated, gpu):
    (warning,) = plan(asked(kind, gpu=gpu), quantization_config=stated)

    assert f"for which {gpu}" in warning
    assert "computes in 16 bits" in warning


@pytest.mark.parametrize(
    ("kind", "stated", "gpu", "fields"),
    [
        ("llmapi", AWQ, "NVIDIA-H100", {"what": "format awq does not run", "expected": "fp8 in blocks, mxfp4"}),
        ("llmapi", GPTQ, "NVIDIA-H100", {"what": "format gptq does not run"}),
        ("llmapi", COMPRESSED, "NVIDIA-H100", {"what": "format compressed-tensors int8 does not run"}),
        ("llmapi", BLOCKS, "NVIDIA-L4", {"what": "fp8 in blocks", "remedy": "a GPU with sm_90 or sm_100 or sm_103"}),
        ("llmapi", MXFP4, "NVIDIA-A10G", {"what": "mxfp4 does not run", "remedy": "sm_90"}),
        ("vllm", MXFP4, "Tesla-T4", {"what": "mxfp4 does not run", "remedy": "sm_80"}),
        ("vllm", COMPRESSED, "NVIDIA-B200", {"what": "compressed-tensors int8 does not run", "remedy": "sm_75"}),
        ("vllm", GPTQ | {"sym": False}, "NVIDIA-L4", {"what": "format gptq of 4 bits, asymmetric does not run"}),
        ("vllm", {"quant_method": "bitsandbytes"}, "NVIDIA-L4", {"what": "bitsandbytes", "expected": "awq, gptq"}),
        ("vllm", {"load_in_4bit": True}, "NVIDIA-L4", {"what": "quantization_config without quant_method"}),
    ],
)
def test_a_checkpoint_of_another_quantizer_is_refused_by_name_where_no_source_says_that_it_runs(
    kind, stated, gpu, fields
):
    with refused(**fields):
        plan(asked(kind, gpu=gpu), quantization_config=stated)


def test_nvfp4_that_exists_is_served_by_older_gpus_and_not_made_on_them():
    made = {"quant_method": "modelopt", "quant_algo": "NVFP4"}

    (warning,) = plan(asked("vllm", gpu="NVIDIA-A10G"), quantization_config=made)

    assert "nvfp4, for which NVIDIA-A10G (sm_86) has no arithmetic" in warning
    with refused(what="ModelOpt cannot quantize to nvfp4 on NVIDIA-A10G", expected="sm_89", remedy="format none"):
        plan(asked("vllm", "nvfp4", gpu="NVIDIA-A10G"))


def test_nvfp4_is_made_and_served_by_weights_alone_from_ada_on():
    (warning,) = plan(asked("vllm", "nvfp4", gpu="NVIDIA-L4"))

    assert "quantization.format nvfp4, for which NVIDIA-L4 (sm_89) has no arithmetic" in warning


@pytest.mark.parametrize("kind", ["trt-engine", "llmapi"])
def test_only_vllm_is_known_to_run_on_turing(kind):
    with refused(what="none does not run on Tesla-T4 (sm_75)", remedy="sm_80"):
        plan(asked(kind, gpu="Tesla-T4"))


def test_a_model_in_bfloat16_is_computed_in_float16_on_turing_with_a_warning():
    weights_only, in_float16 = plan(asked("vllm", "fp8_online", gpu="Tesla-T4"))

    assert "vLLM computes in float16" in in_float16
    assert "fp8_online, for which Tesla-T4 (sm_75) has no arithmetic" in weights_only


@pytest.mark.parametrize(("release", "runs"), [("26.05", True), ("26.06", False), ("26.07", True)])
def test_a_vllm_whose_attention_fails_on_turing_is_refused_there(release, runs):
    site = SITE.model_dump(mode="json")
    image = f"example.com/slipway/tasks-gpu:0.1.0-{release}-vllm@sha256:{'d' * 64}"
    site["images"]["serving"]["vllm"] = image
    spec = asked("vllm", "fp8_online", gpu="Tesla-T4")

    if runs:
        plan(spec, Site.model_validate(site))
    else:
        with refused(what="vLLM 0.22.1", found="FlashInfer on sm_75", remedy="26.07"):
            plan(spec, Site.model_validate(site))


@pytest.mark.parametrize("format_", ["none", "fp8_online"])
@pytest.mark.parametrize("model_type", ["gemma2", "gemma3", "gemma3_text"])
def test_a_model_that_float16_is_too_narrow_for_is_refused_on_turing_whether_it_fits_or_not(model_type, format_):
    with refused(what="Tesla-T4 has no bfloat16", found=model_type, remedy="sm_80"):
        plan(asked("vllm", format_, gpu="Tesla-T4"), model_type=model_type)


@pytest.mark.parametrize(
    ("kind", "format_", "kv_cache"),
    [("llmapi", "none", "none"), ("llmapi", "fp8", "none"), ("llmapi", "nvfp4", "none"), ("vllm", "none", "fp8")],
)
def test_what_nvidia_lists_for_dgx_spark_is_planned_there(kind, format_, kv_cache):
    plan(asked(kind, format_, kv_cache, gpu="NVIDIA-GB10"))


@pytest.mark.parametrize(("kind", "format_"), [("trt-engine", "none"), ("llmapi", "int4_awq"), ("vllm", "fp8_online")])
def test_what_no_source_confirms_on_dgx_spark_is_refused(kind, format_):
    with refused(what=f"{format_} does not run on NVIDIA-GB10 (sm_121)"):
        plan(asked(kind, format_, gpu="NVIDIA-GB10"))


def test_a_format_that_would_fit_is_suggested_where_weights_alone_are_stored_in_it():
    with pytest.raises(InputError) as refusal:
        plan(asked("vllm", gpu="Tesla-T4"))

    assert "format fp8_online" in refusal.value.remedy


@pytest.mark.parametrize(("kind", "format_"), [("llmapi", "none"), ("vllm", "fp8_online"), ("trt-engine", "none")])
def test_a_language_model_that_is_quantized_in_a_larger_model_is_known_as_such(kind, format_):
    """Kimi K3 states it there."""
    text = {**MODELS[REPO]["config"], "quantization_config": {"quant_method": "awq", "bits": 4}}
    whole = dict.fromkeys(MODELS[REPO]["config"]) | {"architectures": ["Mistral3ForConditionalGeneration"]}

    with refused(what="already quantized"):
        plan(asked(kind, format_), **whole, text_config=text)
    plan(asked("vllm"), **whole, text_config=text)
