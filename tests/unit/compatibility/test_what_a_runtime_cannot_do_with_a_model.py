"""Models whose layers, attention or tokenizer an otherwise fitting runtime or GPU does not have."""

import pytest

from tests.fakes.hubs.brought_models import LLAMA, Brought, plan
from tests.support.refused import refused

A100, H100, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L4"
HALF = ["linear_attention", "full_attention"] * 16
HYBRID = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {**LLAMA, "model_type": "qwen3_5_text", "layer_types": HALF},
}
SPARSE = {
    **LLAMA,
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "index_topk": 2048,
    "index_head_dim": 128,
}
GRANITE = {**LLAMA, "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid"}
OF_VERSION_5 = {"chat_template": "{{ messages }}", "tokenizer_class": "TokenizersBackend"}


DENSE = {**GRANITE, "layer_types": ["attention"] * 32}
EVERY_LAYER_HAS_BOTH = {**LLAMA, "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1"}


@pytest.mark.parametrize("hybrid", [HYBRID, EVERY_LAYER_HAS_BOTH, {**GRANITE, "layer_types": ["mamba"] * 32}])
def test_a_hybrid_has_no_cache_in_host_memory(hybrid):
    host = {"options": {"kv_cache_host_gib": 16.0}}

    plan(Brought(LLAMA), "vllm", H100, **host)
    plan(Brought(DENSE), "vllm", H100, **host)
    with refused(what="kv_cache_host_gib ends the engine", found="vLLM 0.24.0", expected="after 0.25.1"):
        plan(Brought(hybrid), "vllm", H100, **host)


@pytest.mark.parametrize("model_type", ["deepseek_v32", "glm_moe_dsa"])
def test_sparse_attention_needs_a_gpu_with_its_kernel(model_type):
    model = Brought({**SPARSE, "model_type": model_type})

    plan(model, "vllm", H100)
    with refused(what="no kernel for sparse attention", found="sm_80", expected="sm_90, sm_100"):
        plan(model, "vllm", A100)


TIED, BY_MODELOPT = (
    {"tie_word_embeddings": True},
    {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}},
)


@pytest.mark.parametrize(("config", "format_"), [({}, "fp8"), (BY_MODELOPT, "none")])
def test_embeddings_shared_with_the_head_are_not_loaded_from_modelopt_by_one_version_of_vllm(config, format_):
    apart = {**LLAMA, **TIED, **config, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}

    plan(Brought({**LLAMA, **config}), "vllm", H100, format_)
    plan(Brought({**LLAMA, **TIED}), "vllm", H100, "fp8_online")
    plan(Brought(apart), "vllm", H100, format_)
    with refused(what="vLLM 0.24.0", found="tie_word_embeddings", remedy="Triton 26.04, 26.05, 26.06, 26.08, or"):
        plan(Brought({**LLAMA, **TIED, **config}), "vllm", H100, format_)


def test_openvino_refuses_layers_with_a_state_and_takes_the_dense_models_of_the_same_type():
    limits = {"format_": "int8", "max_input_tokens": 512, "max_sequence_tokens": 1024}

    plan(Brought({**GRANITE, "layer_types": ["attention"] * 32}, gib=1), "openvino", **limits)
    with refused(what="answers wrongly", found="granitemoehybrid with 28 such layers of 32"):
        plan(Brought({**GRANITE, "layer_types": ["mamba"] * 28 + ["attention"] * 4}, gib=1), "openvino", **limits)


@pytest.mark.parametrize(
    ("kind", "format_", "options"),
    [("trt-engine", "fp8", {}), ("llmapi", "none", {"options": {"guided_decoding_backend": "xgrammar"}})],
)
def test_a_tokenizer_of_version_5_is_refused_where_version_4_loads_it(kind, format_, options):
    model = Brought(LLAMA, gib=10, tokenizer=OF_VERSION_5)

    with refused(what="transformers 4.57.3", found="TokenizersBackend"):
        plan(model, kind, L4, format_, **options)


@pytest.mark.parametrize(("kind", "format_"), [("llmapi", "none"), ("vllm", "none"), ("trt-engine", "none")])
def test_it_is_taken_where_no_transformers_of_version_4_loads_it(kind, format_):
    plan(Brought(LLAMA, gib=10, tokenizer=OF_VERSION_5), kind, L4, format_)


@pytest.mark.parametrize("name", ["LlamaTokenizer", "Qwen2Tokenizer", "PreTrainedTokenizerFast", "GemmaTokenizerFast"])
def test_a_tokenizer_that_version_4_has_is_taken(name):
    plan(Brought(LLAMA, gib=10, tokenizer={**OF_VERSION_5, "tokenizer_class": name}), "trt-engine", L4, "fp8")


def test_positions_that_version_5_alone_reads_are_quantized_for_an_image_that_has_it():
    longrope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 48, "long_factor": [1.1] * 48}
    fields = {name: value for name, value in LLAMA.items() if name != "rope_theta"}
    phi = {**fields, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "rope_parameters": longrope}

    plan(Brought({**phi, "original_max_position_embeddings": 4096}, gib=7), "vllm", L4, "fp8")
    with refused(what="transformers 4 of the serving runtime", remedy="version 5"):
        plan(Brought({**phi, "original_max_position_embeddings": 4096}, gib=7), "llmapi", L4, "fp8")
