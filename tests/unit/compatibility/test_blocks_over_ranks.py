"""vLLM gives every rank whole blocks of FP8 weights: a block has one scale."""

import pytest

from tests.fakes.documents.gpu_planning import asked, plan
from tests.support.refused import refused

BLOCKS = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
HEADS = {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128}
EXPERTS = {"model_type": "qwen3_moe", "num_experts_per_tok": 8, **HEADS}


@pytest.mark.parametrize(("expert", "tensor"), [(768, 2), (1536, 4), (2048, 8)])
def test_ranks_that_hold_whole_blocks_are_taken(expert, tensor):
    plan(asked("vllm", tensor_parallel=tensor), **BLOCKS, **EXPERTS, moe_intermediate_size=expert)


@pytest.mark.parametrize(("expert", "tensor", "fit"), [(768, 4, 2), (1536, 8, 4)])
def test_ranks_that_divide_a_block_of_an_expert_are_refused(expert, tensor, fit):
    """Qwen3-30B-A3B-FP8 and Qwen3-235B-A22B-FP8."""
    with refused(
        found=f"an expert of {expert}, 192 on each rank", remedy=f"tensor_parallel {fit}, expert_parallel {tensor}"
    ):
        plan(asked("vllm", tensor_parallel=tensor), **BLOCKS, **EXPERTS, moe_intermediate_size=expert)


@pytest.mark.parametrize(("expert", "tensor"), [(768, 4), (1536, 8)])
def test_whole_experts_may_be_shared_out_over_as_many_ranks(expert, tensor):
    engine = asked("vllm", tensor_parallel=tensor, expert_parallel=tensor)

    plan(engine, **BLOCKS, **EXPERTS, num_experts=128, moe_intermediate_size=expert)


def test_ranks_that_divide_a_block_of_an_mlp_are_refused():
    qwen_14b = {"hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 13824}

    with refused(
        found="an MLP of 13824, 1728 on each rank",
        remedy="Choose tensor_parallel 1, tensor_parallel 2, tensor_parallel 4.",
    ):
        plan(asked("vllm", tensor_parallel=8), **BLOCKS, **qwen_14b)


def test_weights_without_blocks_may_be_divided_anywhere():
    plan(asked("vllm", tensor_parallel=8), **EXPERTS, moe_intermediate_size=1536)


@pytest.mark.parametrize(("kv_heads", "tensor"), [(8, 8), (4, 8), (2, 4)])
def test_keys_that_every_rank_has_a_copy_of_are_whole_blocks(kv_heads, tensor):
    changes = {**EXPERTS, "num_key_value_heads": kv_heads, "moe_intermediate_size": 2048}

    plan(asked("vllm", tensor_parallel=tensor), **BLOCKS, **changes)


def test_ranks_that_divide_a_block_of_keys_are_refused():
    narrow = {**EXPERTS, "head_dim": 64, "moe_intermediate_size": 2048}

    with refused(
        found="512 rows of queries and 64 of keys", remedy="tensor_parallel 1, tensor_parallel 2, tensor_parallel 4."
    ):
        plan(asked("vllm", tensor_parallel=8), **BLOCKS, **narrow)


def test_attention_that_is_left_out_of_the_blocks_may_be_divided():
    left_out = [f"model.layers.{number}.self_attn.{part}_proj" for number in range(64) for part in "qkvo"]
    kept = {"quantization_config": {**BLOCKS["quantization_config"], "modules_to_not_convert": left_out}}

    plan(asked("vllm", tensor_parallel=8), **kept, **{**EXPERTS, "head_dim": 64, "moe_intermediate_size": 2048})
