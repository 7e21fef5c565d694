"""The KV cache is that of the layers that have one: hybrids, shared layers, and layers that differ in their heads."""

import pytest

from slipway.tasks.engines.preflight.memory_fit import sequence_bytes
from slipway.tasks.engines.preflight.model_shape import shape_of
from tests.fakes.hubs.brought_models import LLAMA, Brought, plan, spec_of
from tests.support.refused import refused

TOKENS = 131_072
NEMOTRON = {
    **LLAMA,
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "hidden_size": 2688,
    "intermediate_size": 1856,
    "head_dim": 128,
    "num_key_value_heads": 2,
    "num_hidden_layers": 52,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "vocab_size": 131072,
    "max_position_embeddings": 262144,
}
HALF = [*["full_attention"] * 16, *["linear_attention"] * 16]


def of_llama(**fields):
    return {**LLAMA, **fields}


def cached(config, **engine):
    limits = {"max_batch_size": 1, "max_input_tokens": 1, "max_sequence_tokens": TOKENS}
    return sequence_bytes(spec_of("vllm", "NVIDIA-L4", **{**limits, **engine}), shape_of(config))


@pytest.mark.parametrize(
    ("fields", "layers"),
    [
        ({}, 32),
        ({"layer_types": HALF}, 16),
        ({"layer_types": ["conv"] * 30 + ["full_attention"] * 2}, 2),
        ({"layers_block_type": ["mamba"] * 28 + ["attention"] * 4}, 4),
        ({"layers_block_type": ["mamba"] * 28 + ["hybrid"] * 4}, 4),
        ({"hybrid_override_pattern": "M-M*" * 8}, 8),
        ({"attn_type_list": [0] * 28 + [1] * 4}, 4),
        ({"model_type": "jamba", "attn_layer_period": 8, "attn_layer_offset": 4}, 4),
        ({"model_type": "jamba"}, 4),
        ({"attn_layer_indices": [9, 18, 27]}, 3),
        ({"full_attn_idxs": [2, 5]}, 2),
        ({"model_type": "qwen3_next"}, 8),
        ({"model_type": "qwen3_next", "full_attention_interval": 8}, 4),
        ({"linear_attn_config": {"full_attn_layers": [4, 8, 32], "kda_layers": [1]}}, 3),
        ({"block_configs": [{"attention": {"no_op": True}}] * 8 + [{"attention": {"n_heads_in_group": 4}}] * 24}, 24),
        ({"block_configs": [{"block_type": "attention"}] * 5 + [{"block_type": "moe"}] * 27}, 5),
        ({"num_kv_shared_layers": 12}, 20),
        ({"layer_types": ["full_attention"] * 3}, 32),  # a list of another length says nothing
    ],
)
def test_layers_without_a_cache_are_not_counted(fields, layers):
    assert cached(of_llama(**fields)) == layers * TOKENS * 2 * 8 * 128 * 2


def test_a_model_without_attention_needs_no_cache():
    config = of_llama(architectures=["MambaForCausalLM"], model_type="mamba")

    assert cached(config) == 0
    plan(Brought(config, gib=10), "vllm", "NVIDIA-L4")


@pytest.mark.parametrize(
    "fields",
    [
        {"n_head_kv": 2},
        {"num_kv_heads": 2},
        {"multi_query_group_num": 2},
        {"num_attention_groups": 2},
        {"attn_config": {"kv_n_heads": 2}},
        {"num_key_value_heads": [2] * 32},
        {"block_configs": [{"attention": {"n_heads_in_group": 16}}] * 32},
    ],
)
def test_heads_of_keys_have_the_names_that_runtimes_read(fields):
    config = {name: value for name, value in LLAMA.items() if name != "num_key_value_heads"} | fields

    assert cached(config) == 32 * TOKENS * 2 * 2 * 128 * 2


def test_layers_with_and_without_a_window_may_have_other_heads():
    """Gemma 4: larger heads where the whole sequence is read."""
    types = ["sliding_attention"] * 16 + ["full_attention"] * 16
    config = of_llama(layer_types=types, sliding_window=512, global_head_dim=512, num_global_key_value_heads=2)
    in_window = 512 - 1 + 8192 + 16

    assert cached(config) == 16 * TOKENS * 2 * 2 * 512 * 2 + 16 * in_window * 2 * 8 * 128 * 2


@pytest.mark.parametrize("model_type", ["glm_moe_dsa", "kimi_k2", "deepseek_v32", "pangu_ultra_moe"])
def test_latent_attention_caches_one_vector_in_every_family_that_has_it(model_type):
    config = of_llama(model_type=model_type, kv_lora_rank=512, qk_rope_head_dim=64, head_dim=192)

    assert cached(config) == 32 * TOKENS * (512 + 64) * 2


def test_the_indexer_of_sparse_attention_has_a_cache_of_its_own():
    fields = {"model_type": "deepseek_v32", "kv_lora_rank": 512, "qk_rope_head_dim": 64}

    more = cached(of_llama(**fields, index_head_dim=128, index_topk=2048)) - cached(of_llama(**fields))

    assert more == 32 * TOKENS * (128 + 4)


def test_a_cache_that_is_compressed_has_fewer_entries():
    config = of_llama(model_type="deepseek_v4", head_dim=512, compress_ratios=[4] * 32)

    assert cached(config) == 32 * TOKENS // 4 * 512 * 2


def test_stages_of_a_pipeline_hold_their_own_layers():
    assert cached(of_llama(layer_types=HALF), pipeline_parallel=2) == 16 * TOKENS * 2 * 8 * 128 * 2


def test_a_hybrid_with_a_long_context_fits_where_all_layers_would_not():
    long = {"max_sequence_tokens": TOKENS, "max_input_tokens": 100_000}
    full = {name: value for name, value in NEMOTRON.items() if name != "hybrid_override_pattern"}

    plan(Brought(NEMOTRON, gib=63), "vllm", "NVIDIA-H100-80GB-HBM3", **long)
    with refused(what="KV cache 6.5"):
        plan(Brought({**full, "model_type": "llama"}, gib=63), "vllm", "NVIDIA-H100-80GB-HBM3", **long)


def test_a_width_for_each_layer_is_read():
    """Gemma 3n has intermediate_size as a list, OpenELM its heads."""
    widths = [8192] * 16 + [16384] * 16
    config = of_llama(intermediate_size=widths, num_attention_heads=[32] * 32, num_key_value_heads=[8] * 32)

    assert shape_of(config).intermediate == 16384
    plan(Brought(config, gib=15), "vllm", "NVIDIA-L4")


@pytest.mark.parametrize("odd", [[], [0], ["a"], [1.5], [True], [10**12]])
def test_a_list_of_something_else_is_refused(odd):
    with refused(what="intermediate_size", expected="one for each layer"):
        plan(Brought(of_llama(intermediate_size=odd)), "vllm", "NVIDIA-L4")


def test_the_whole_batch_of_a_model_without_a_cache_is_taken_at_once():
    _, warnings = plan(
        Brought(of_llama(architectures=["MambaForCausalLM"], model_type="mamba"), gib=4), "vllm", "NVIDIA-L4"
    )

    assert not any("holds" in warning for warning in warnings)
