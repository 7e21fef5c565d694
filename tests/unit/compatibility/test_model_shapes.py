"""What the estimate of memory reads from config.json: fields that are left out, windows, latents and experts."""

import pytest

from slipway.tasks.engines.preflight.memory_fit import need_of, sequence_bytes
from slipway.tasks.engines.preflight.model_shape import missing_fields, shape_of
from tests.fakes.documents.gpu_planning import asked as planned
from tests.fakes.documents.gpu_planning import plan
from tests.fakes.hubs.public_hub import MODELS, weights_bytes
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused

LLAMA_8B = "meta-llama/Meta-Llama-3-8B-Instruct"
GEMMA_12B = {
    "model_type": "gemma3_text",
    "hidden_size": 3840,
    "intermediate_size": 15360,
    "num_attention_heads": 16,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "sliding_window": 1024,
}
GEMMA_4B = {
    "model_type": "gemma3_text",
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_hidden_layers": 34,
    "sliding_window": 1024,
}
GEMMA_27B = {
    "model_type": "gemma3_text",
    "head_dim": 128,
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_hidden_layers": 62,
    "num_key_value_heads": 16,
    "sliding_window": 1024,
}
"""text_config of google/gemma-3-*-it: what is not here has the default of Gemma3TextConfig."""
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "qk_rope_head_dim": 64,
    "vocab_size": 129280,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
GPT_OSS_20B = {
    "model_type": "gpt_oss",
    "head_dim": 64,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "sliding_window": 128,
    "vocab_size": 201088,
}
TOKENS = 131_072
IN_WINDOW = 1024 - 1 + 8192 + 16
"""What vLLM keeps of a sequence in a window of 1024: the window, a step's tokens, and a block more."""


def gemma(text):
    return {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text}


def asked(kind="vllm", *, kv_cache="none", **engine):
    limits = {"max_batch_size": 1, "max_input_tokens": 1, "max_sequence_tokens": TOKENS}
    return spec(
        quantization={"format": "none", "kv_cache": kv_cache},
        engine={**SPEC["engine"], **limits, "kind": kind, "gpu": "NVIDIA-L4", **engine},
    )


def cached(config, kind="vllm", **changes):
    """Bytes of one sequence's cache."""
    return sequence_bytes(asked(kind, **changes), shape_of(config))


@pytest.mark.parametrize(
    ("text", "layers", "heads", "kv_heads", "head_dim"),
    [(GEMMA_4B, 34, 8, 4, 256), (GEMMA_12B, 48, 16, 8, 256), (GEMMA_27B, 62, 32, 16, 128)],
)
def test_fields_that_gemma_3_leaves_out_have_the_defaults_of_its_text_config(text, layers, heads, kv_heads, head_dim):
    shape = shape_of(gemma(text))

    assert (shape.layers, shape.heads, shape.kv_heads, shape.head_dim) == (layers, heads, kv_heads, head_dim)
    assert (shape.vocabulary, shape.tied) == (262208, True)
    assert missing_fields(gemma(text)) == []


def test_a_language_model_without_a_type_of_its_own_has_that_of_the_whole():
    text = {name: value for name, value in GEMMA_12B.items() if name != "model_type"}

    assert shape_of(gemma(text)) == shape_of(gemma(GEMMA_12B))


@pytest.mark.parametrize("part", ["text_config", "language_config", "llm_config"])
def test_the_language_models_part_of_a_larger_configuration_is_read(part):
    config = MODELS[LLAMA_8B]["config"]

    assert shape_of({part: config, "vision_config": {"num_hidden_layers": 27}}) == shape_of(config)


def test_the_older_names_of_gpt_2_are_read():
    shape = shape_of({"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_inner": None})

    assert (shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.intermediate) == (1600, 48, 25, 25, 6400)


@pytest.mark.parametrize("field", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"])
def test_a_field_that_an_unknown_model_leaves_out_is_named_in_place_of_a_shape(field):
    config = {name: value for name, value in MODELS[LLAMA_8B]["config"].items() if name != field}

    for unknown in (config, {**config, "model_type": "none-such"}):
        assert missing_fields(unknown) == [field]
        assert shape_of(unknown) is None
    assert shape_of({**config, "model_type": "llama"}) is not None


def test_a_field_that_is_null_is_refused_even_where_the_type_has_a_default():
    with refused(what="num_hidden_layers", found="None", expected="a number above 0"):
        shape_of({**MODELS[LLAMA_8B]["config"], "model_type": "llama", "num_hidden_layers": None})


@pytest.mark.parametrize("part", ["text_config", "llm_config"])
def test_more_layers_than_any_model_has_are_refused_before_they_are_looked_at(part):
    with refused(what="num_hidden_layers", found="1000000000", expected="at most 10000"):
        shape_of({part: {**MODELS[LLAMA_8B]["config"], "num_hidden_layers": 10**9}})


def test_a_dimension_of_a_head_that_is_null_follows_from_the_others():
    config = {**MODELS[LLAMA_8B]["config"], "model_type": "qwen3", "head_dim": None, "num_key_value_heads": None}

    assert (shape_of(config).head_dim, shape_of(config).kv_heads) == (128, 32)


@pytest.mark.parametrize("kind", ["vllm", "llmapi"])
@pytest.mark.parametrize(
    ("kv_cache", "tensor", "bytes_per_token"), [("none", 1, 70272), ("none", 8, 70272), ("fp8", 8, 35136)]
)
def test_latent_attention_caches_one_vector_a_token_and_layer_on_every_rank(kind, kv_cache, tensor, bytes_per_token):
    # 8.58 GiB for 128k tokens of DeepSeek V3 (provide.ai, "The exact KV cache usage of DeepSeek V4")
    assert cached(DEEPSEEK_V3, kind, kv_cache=kv_cache, tensor_parallel=tensor) == TOKENS * bytes_per_token


def test_an_engine_has_room_for_two_latents():
    assert cached(DEEPSEEK_V3, "trt-engine") == TOKENS * 2 * 70272


def test_a_model_with_ranks_of_its_own_but_another_type_caches_keys_and_values():
    config = {**DEEPSEEK_V3, "model_type": "minicpm3", "head_dim": 192}

    assert cached(config) == TOKENS * 61 * 2 * 128 * 192 * 2


def test_blocks_of_8_bits_weigh_what_their_files_do():
    files = 688 * 10**9

    need = need_of(asked(tensor_parallel=8), shape_of(DEEPSEEK_V3), files, quantized=True)

    assert need.weights == pytest.approx(files / 8, rel=0.03)


@pytest.mark.parametrize("kind", ["trt-engine", "llmapi"])
def test_tensorrt_llm_keeps_whole_sequences_in_every_layer(kind):
    assert cached(gemma(GEMMA_27B), kind) == TOKENS * 62 * 2 * 16 * 128 * 2


@pytest.mark.parametrize(
    ("config", "full", "sliding", "window", "bytes_per_token"),
    [
        # 10 full layers and 52 with a window, which vLLM groups by ten
        (gemma(GEMMA_27B), 10, 60, 1024, 2 * 16 * 128 * 2),
        # 5 full layers of 34
        (gemma(GEMMA_4B), 5, 30, 1024, 2 * 4 * 256 * 2),
        (GPT_OSS_20B, 12, 12, 128, 2 * 8 * 64 * 2),
        ({**GPT_OSS_20B, "layer_types": ["sliding_attention"] * 12 + ["full_attention"] * 12}, 12, 12, 128, 2048),
        # nearly as many: both padded to the larger
        ({**GPT_OSS_20B, "layer_types": ["sliding_attention"] * 11 + ["full_attention"] * 13}, 13, 13, 128, 2048),
        # every layer, as Mistral 7B v0.1
        ({**MODELS[LLAMA_8B]["config"], "model_type": "mistral", "sliding_window": 4096}, 0, 32, 4096, 4096),
        ({**MODELS[LLAMA_8B]["config"], "model_type": "mistral", "sliding_window": None}, 32, 0, 0, 4096),
        # the default of Qwen 2 and 3 is a window that is switched off
        ({**MODELS[LLAMA_8B]["config"], "model_type": "qwen3", "head_dim": 128}, 32, 0, 0, 4096),
        (
            {**MODELS[LLAMA_8B]["config"], "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 16},
            *(16, 16, 4096, 4096),
        ),
        # cached whole: vLLM turns its hybrid cache off for chunked attention
        ({**MODELS[LLAMA_8B]["config"], "model_type": "llama4_text", "attention_chunk_size": 8192}, 32, 0, 0, 4096),
    ],
)
def test_vllm_keeps_only_the_window_of_a_sliding_layer(config, full, sliding, window, bytes_per_token):
    in_window = window - 1 + 8192 + 16

    assert cached(config) == (full * TOKENS + sliding * in_window) * bytes_per_token


def test_a_sequence_shorter_than_a_window_and_a_step_is_kept_whole():
    assert cached(GPT_OSS_20B, max_sequence_tokens=8192) == 8192 * 24 * 2048


def test_a_pipeline_stage_keeps_its_own_layers_windows():
    # stages of 17 layers: the second has layers 17 to 33, of which 17, 23 and 29 are full
    assert cached(gemma(GEMMA_4B), pipeline_parallel=2) == (3 * TOKENS + 15 * IN_WINDOW) * 2 * 4 * 256 * 2


def test_a_tied_matrix_is_counted_twice_only_where_an_engine_has_two():
    weights = {
        kind: need_of(asked(kind), shape_of(gemma(GEMMA_12B)), 24 * 2**30).weights for kind in ("vllm", "trt-engine")
    }

    assert weights["vllm"] == pytest.approx(24 * 2**30, rel=1e-6)
    assert weights["trt-engine"] - weights["vllm"] == pytest.approx(262208 * 3840 * 2, rel=1e-6)


def test_a_token_of_a_mixture_of_experts_needs_workspace_for_each_expert_that_it_uses():
    dense = {**DEEPSEEK_V3, "num_experts_per_tok": None}
    one, eight = (
        need_of(asked(tensor_parallel=8), shape_of(config), weights_bytes(LLAMA_8B)) for config in (dense, DEEPSEEK_V3)
    )

    assert eight.workspace - one.workspace == 8192 * 2 * 8 * (7168 + 2 * 2048 // 8)


ABSURD = 10**400


@pytest.mark.parametrize(
    "fields",
    [
        {"num_experts_per_tok": ABSURD},
        {"num_experts_per_tok": 4, "moe_intermediate_size": ABSURD},
        {"intermediate_size_mlp": ABSURD},
        {"model_type": "deepseek_v3", "kv_lora_rank": ABSURD},
        {"max_position_embeddings": None, "n_positions": "x"},
    ],
)
def test_a_number_that_no_model_has_counts_as_left_out(fields):
    plan(planned("vllm"), **fields)


@pytest.mark.parametrize("name", ["d_model", "ffn_dim", "num_kv_heads"])
def test_an_older_name_of_a_dimension_has_the_same_limits(name):
    field = {"d_model": "hidden_size", "ffn_dim": "intermediate_size", "num_kv_heads": "num_key_value_heads"}[name]

    with refused(what=field, expected="above 0, at most"):
        plan(planned("vllm"), **{name: ABSURD, field: None})
