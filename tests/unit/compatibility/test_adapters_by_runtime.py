"""LoRA adapters as each runtime serves them: what plan takes and refuses for TensorRT-LLM's, by their own sources."""

import json

import pytest

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, kinds_with_adapters
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.preflight.lora_memory import lora_bytes
from slipway.tasks.engines.preflight.model_shape import shape_of
from tests.fakes.documents.eks_site import eks
from tests.fakes.documents.planned_release import release_of
from tests.fakes.hubs.hub_with_adapters import HubWithAdapters
from tests.fakes.hubs.public_hub import MODELS
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.yaml_documents import load_yaml

LLAMA, LLAMA_70B = "meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-70B-Instruct"
MISTRAL = "mistralai/Mistral-7B-Instruct-v0.2"
QWEN = "Qwen/Qwen2.5-7B-Instruct"
SPEC = load_yaml((REPOSITORY / "specs" / "llama-3-8b-awq-l4.yaml").read_text())
CALIBRATION = SPEC["quantization"]["calibration"]
H100 = "NVIDIA-H100-80GB-HBM3"
TENSORRT_LLM = ("trt-engine", "llmapi")
POLITE = {"name": "polite", "repo": "org/polite"}
ENGINE = {**SPEC["engine"], "kind": "llmapi", "lora": [POLITE]}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def files(**config):
    written = {
        "peft_type": "LORA",
        "r": 16,
        "lora_alpha": 32,
        "base_model_name_or_path": LLAMA,
        "target_modules": ALL,
        **config,
    }
    return {"adapter_config.json": json.dumps(written).encode(), "adapter_model.safetensors": b"weights"}


@pytest.fixture
def planned(tmp_path):
    """Plan a model with an adapter; the release. `model` are fields of config.json, `adapter` of the adapter's."""

    def run(kind, *, repo=LLAMA, format="none", adapter=(), model=None, lora=(POLITE,), **engine):  # noqa: A002
        settings = {"gpu": H100, "max_batch_size": 4, "max_input_tokens": 512, "max_sequence_tokens": 1024, **engine}
        quantization = {"format": format, **({} if format in ("none", "int8_wo") else {"calibration": CALIBRATION})}
        changes = {
            "source": {"repo": repo},
            "quantization": quantization,
            "engine": {"kind": kind, "lora": lora, **settings},
        }
        hub = HubWithAdapters(model, polite={"main": files(**dict(adapter))})
        return release_of(ReleaseSpec.model_validate({**SPEC, **changes}), Site.model_validate(eks()), hub, tmp_path)

    return run


@pytest.mark.parametrize("kind", kinds_with_adapters())
def test_each_kind_with_adapters_pins_them(planned, kind):
    release = planned(kind)

    assert list(release.plan.adapters) == ["polite"]
    assert "lora/polite/adapter_config.json" in release.plan.stages["download"].fields["files"]


def test_the_kinds_with_adapters_are_those_of_gpus():
    assert set(kinds_with_adapters()) == {kind for kind, traits in ENGINE_KINDS.items() if traits.on_gpu}


@pytest.mark.parametrize("kind", TENSORRT_LLM)
@pytest.mark.parametrize("rank", [12, 63, 520, 0])
def test_a_rank_that_tensorrt_llms_kernels_would_read_wrongly_is_refused(planned, kind, rank):
    with refused(what="no rank that TensorRT-LLM's", found=str(rank), expected="1, 2, 4, or a multiple of 8 up to 512"):
        planned(kind, adapter={"r": rank})


@pytest.mark.parametrize("kind", kinds_with_adapters())
@pytest.mark.parametrize("rank", [4, 64])
def test_a_rank_that_every_runtime_serves_is_taken(planned, kind, rank):
    assert planned(kind, adapter={"r": rank}).plan.adapters


def test_vllm_takes_ranks_between(planned):
    assert planned("vllm", adapter={"r": 12}).plan.adapters


@pytest.mark.parametrize(
    ("kind", "repo", "layers"),
    [
        ("trt-engine", LLAMA, ALL),
        ("trt-engine", MISTRAL, ALL),
        ("trt-engine", QWEN, ALL),
        ("llmapi", LLAMA, ALL),
        ("llmapi", MISTRAL, ALL[:4]),
        ("vllm", QWEN, ["lm_head"]),
    ],
)
def test_layers_that_the_runtime_changes_are_taken(planned, kind, repo, layers):
    assert planned(kind, repo=repo, adapter={"target_modules": layers}).plan.adapters


@pytest.mark.parametrize(
    ("kind", "repo", "layers", "foreign"),
    [
        ("llmapi", MISTRAL, ALL, "down_proj, gate_proj, up_proj"),
        ("llmapi", LLAMA, ["q_proj", "lm_head"], "lm_head"),
        ("trt-engine", LLAMA, ["model.layers.0.self_attn.q_proj", "embed_tokens"], "embed_tokens"),
        ("trt-engine", QWEN, ["mlp.gate"], "gate"),
    ],
)
def test_layers_that_the_runtime_would_leave_as_they_are_are_refused(planned, kind, repo, layers, foreign):
    with refused(what="changes layers to which TensorRT-LLM", found=foreign, remedy="merge_and_unload"):
        planned(kind, repo=repo, adapter={"target_modules": layers})


def test_a_pattern_of_layers_is_left_to_quantize(planned):
    assert planned("llmapi", adapter={"target_modules": r".*\.(q|v)_proj"}).plan.adapters


@pytest.mark.parametrize(
    ("kind", "repo", "model", "architecture"),
    [
        ("llmapi", QWEN, None, "Qwen2ForCausalLM"),
        ("llmapi", LLAMA, {"architectures": ["Qwen3ForCausalLM"]}, "Qwen3ForCausalLM"),
        ("trt-engine", LLAMA, {"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM"),
    ],
)
def test_a_model_to_which_the_runtime_applies_no_adapter_is_refused(planned, kind, repo, model, architecture):
    with refused(what=f"not known to apply LoRA adapters to {architecture}", remedy="another engine kind"):
        planned(kind, repo=repo, model=model)


@pytest.mark.parametrize(("kind", "format"), [("trt-engine", "int8_wo"), ("llmapi", "fp8")])
def test_formats_with_adapters_are_taken(planned, kind, format):  # noqa: A002
    assert planned(kind, format=format, adapter={"target_modules": ALL[:3]}).plan.adapters


def test_a_format_whose_layers_refuse_adapters_is_refused(planned):
    with refused(what="adapters to a model in int8_sq", expected="int4_awq"):
        planned("trt-engine", format="int8_sq")


def test_a_checkpoint_that_comes_in_such_a_format_is_refused_too(planned):
    quantized = {"quantization_config": {"quant_method": "gptq", "bits": 4}}

    with refused(what="adapters to a model in gptq"):
        planned("llmapi", model=quantized)


def test_a_layer_whose_input_comes_in_8_bits_is_refused(planned):
    with refused(what="format fp8", found="o_proj"):
        planned("llmapi", format="fp8")


def test_a_wide_model_in_8_bits_over_several_gpus_is_refused(planned):
    adapter = {"target_modules": ALL[:3]}

    with refused(what="already quantized to fp8", found="hidden_size 8192 with tensor_parallel 4"):
        planned("llmapi", repo=LLAMA_70B, format="fp8", tensor_parallel=4, adapter=adapter)
    assert planned("llmapi", repo=LLAMA_70B, tensor_parallel=4, adapter=adapter).plan.adapters


def test_an_engine_of_a_wide_model_in_8_bits_takes_adapters(planned):
    assert planned("trt-engine", repo=LLAMA_70B, format="fp8", tensor_parallel=4).plan.adapters


def test_an_engine_whose_stages_differ_in_length_is_refused(planned):
    with refused(what="wrong layers", found="32 layers in 3 stages"):
        planned("trt-engine", pipeline_parallel=3)
    assert planned("llmapi", pipeline_parallel=3).plan.adapters


@pytest.mark.parametrize("kind", TENSORRT_LLM)
def test_room_for_adapters_that_there_are_none_of_is_refused(planned, kind):
    with refused(what="engine.options.max_loras has no effect"):
        planned(kind, lora=(), options={"max_loras": 2})


def test_pages_of_tensorrt_llm_are_as_wide_as_its_widest_layer():
    """Llama 3 8B: keys and values have 5,120 elements a rank, a page; an MLP's layers take four of them each."""
    shape = shape_of(MODELS[LLAMA]["config"])
    spec = ReleaseSpec.model_validate({**SPEC, "quantization": {"format": "none"}, "engine": ENGINE})
    other = spec.model_copy(update={"engine": spec.engine.model_copy(update={"kind": "vllm"})})
    exact = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)

    assert lora_bytes(spec, shape, 16) == 2 * 16 * 32 * 7 * 4 * 5120
    assert lora_bytes(other, shape, 16) == 2 * 16 * 32 * exact
    assert lora_bytes(spec, shape, 0) == 0
