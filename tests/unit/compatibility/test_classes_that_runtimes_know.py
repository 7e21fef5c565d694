"""A model is planned only where its runtime has a class for it that generates text, by upstream's own lists."""

import pytest

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS
from slipway.tasks.contracts.site.triton_images import STATED_IMAGES
from slipway.tasks.engines.upstream.tables import PACKAGES, table_of
from tests.fakes.hubs.brought_models import LLAMA, Brought, plan
from tests.support.refused import refused

ON_L4 = {"vllm": "NVIDIA-L4", "llmapi": "NVIDIA-L4"}


def of(architecture, model_type="llama", **fields):
    return Brought({**LLAMA, "architectures": [architecture], "model_type": model_type, **fields})


@pytest.mark.parametrize("flavour", PACKAGES)
def test_every_image_that_may_serve_has_a_table(flavour):
    releases = {
        release for traits in ENGINE_KINDS.values() if traits.flavour == flavour for release in traits.triton_releases
    }
    versions = {STATED_IMAGES[flavour, release].runtime for release in releases}

    assert [version for version in versions if table_of(PACKAGES[flavour], version) is None] == []


@pytest.mark.parametrize("kind", ON_L4)
def test_a_class_that_a_runtime_has_is_taken(kind):
    plan(of("Qwen3ForCausalLM", "qwen3"), kind, ON_L4[kind])


@pytest.mark.parametrize(
    ("kind", "architecture", "model_type", "version"),
    [
        ("vllm", "MadeUpForCausalLM", "made_up", "vLLM 0.24.0"),
        ("vllm", "QWenLMHeadModel", "qwen", "vLLM 0.24.0"),  # dropped in 0.23
        ("llmapi", "FalconH1ForCausalLM", "falcon_h1", "TensorRT-LLM 1.2.1"),
        ("llmapi", "Qwen3_5ForConditionalGeneration", "qwen3_5", "TensorRT-LLM 1.2.1"),
        ("llmapi", "DeepseekV2ForCausalLM", "deepseek_v2", "TensorRT-LLM 1.2.1"),
    ],
)
def test_a_class_that_a_runtime_lacks_is_refused_with_its_version(kind, architecture, model_type, version):
    with refused(what=f"{version} has no class", found=architecture, expected="list of models"):
        plan(of(architecture, model_type), kind, ON_L4[kind])


def test_a_checkpoint_with_code_of_its_own_is_refused_by_the_code():
    with refused(what="auto_map in config.json) is not run"):
        plan(
            of("MadeUpForCausalLM", auto_map={"AutoModelForCausalLM": "modeling.MadeUpForCausalLM"}),
            "vllm",
            "NVIDIA-L4",
        )


@pytest.mark.parametrize("kind", ["vllm", "llmapi", "trt-engine", "openvino"])
@pytest.mark.parametrize(
    "architecture",
    ["LlamaForSequenceClassification", "Qwen2ForRewardModel", "LlamaModel", "Gemma2ForTokenClassification"],
)
def test_a_model_that_generates_no_text_is_refused_by_every_kind(kind, architecture):
    format_ = "int8" if kind == "openvino" else "none"

    with refused(what="generates no text", found=architecture):
        plan(of(architecture), kind, ON_L4.get(kind, "NVIDIA-L4" if kind == "trt-engine" else None), format_)


@pytest.mark.parametrize("kind", ON_L4)
def test_a_configuration_without_a_class_is_refused(kind):
    with refused(what="names no architectures"):
        plan(Brought({**LLAMA, "architectures": []}), kind, ON_L4[kind])


def test_a_second_class_counts_where_the_runtime_knows_that_one():
    plan(Brought({**LLAMA, "architectures": ["MadeUpForCausalLM", "LlamaForCausalLM"]}), "vllm", "NVIDIA-L4")


def test_a_class_of_transformers_alone_is_served_with_a_warning():
    _, warnings = plan(of("HeliumForCausalLM", "helium"), "vllm", "NVIDIA-L4")

    assert any("has no class of its own" in warning for warning in warnings)


def test_a_model_type_that_the_pinned_transformers_lacks_is_refused():
    with refused(what="transformers 4.57.3", found="llama_of_2027", remedy="vllm"):
        plan(of("LlamaForCausalLM", "llama_of_2027"), "llmapi", "NVIDIA-L4")
