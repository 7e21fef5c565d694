"""How long a sequence may be follows from the fields that the runtime reads, and from what it adds for scaled positions."""

import pytest

from slipway.tasks.engines.checkpoint.positions import positions_of
from tests.fakes.hubs.brought_models import LLAMA, Brought, plan
from tests.support.refused import refused

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def of(**fields):
    config = {**LLAMA, "max_position_embeddings": 32768, **fields}
    return {name: value for name, value in config.items() if value is not None}


@pytest.mark.parametrize(
    ("fields", "by_vllm", "by_tensorrt_llm", "by_transformers"),
    [
        ({}, 32768, 32768, 32768),
        ({"rope_scaling": YARN}, 131072, 32768, 131072),
        ({"rope_parameters": {**YARN, "rope_theta": 1e6}}, 131072, 32768, 131072),
        ({"rope_scaling": YARN, "max_position_embeddings": 131072}, 131072, 131072, 131072),
        (
            {"rope_scaling": {**YARN, "rope_type": "telechat3-yarn", "original_max_position_embeddings": 8192}},
            *(32768, 131072, 32768),
        ),
        (
            {"rope_scaling": {**YARN, "rope_type": "deepseek_yarn", "original_max_position_embeddings": 8192}},
            *(32768, 131072, 32768),
        ),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 65536, 65536, 65536),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 65536, 65536, 65536),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 32768, 32768, 32768),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0]}}, 32768, 32768, 32768),
        ({"rope_scaling": {"rope_type": "linear", "factor": None}}, 32768, 32768, 32768),
        ({"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 32768, 262144, 32768),
        ({"model_max_length": 8192}, 8192, 8192, 8192),
        ({"seq_length": 4096}, 4096, 4096, 4096),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}, "sliding_attention": {}}},
            *(65536, 65536, 65536),
        ),
    ],
)
def test_each_runtime_derives_positions_by_its_own_rule(fields, by_vllm, by_tensorrt_llm, by_transformers):
    assert positions_of("vllm", of(**fields)) == by_vllm
    assert positions_of("trtllm", of(**fields)) == by_tensorrt_llm
    assert positions_of(None, of(**fields)) == by_transformers


@pytest.mark.parametrize(
    "name", ["n_positions", "max_seq_len", "seq_length", "max_target_positions", "max_sequence_length", "seq_len"]
)
def test_positions_have_many_names(name):
    config = {**of(max_position_embeddings=None), "model_type": "of its own", name: 1024}

    assert {positions_of(runtime, config) for runtime in ("vllm", "trtllm", None)} == {1024}


def test_a_model_that_states_none_has_no_limit():
    assert positions_of("vllm", {**of(max_position_embeddings=None), "model_type": "of its own"}) is None


GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "vocab_size": 50257,
}


def test_learned_positions_end_on_cpu_too():
    model = Brought(GPT2, weights={"model.safetensors": 2**29})

    plan(model, "openvino", format_="int8", max_input_tokens=512, max_sequence_tokens=1024)
    with refused(what="engine.max_sequence_tokens", found="4096", expected="at most 1024"):
        plan(model, "openvino", format_="int8", max_input_tokens=512, max_sequence_tokens=4096)


def test_a_context_that_yarn_extends_is_served_where_the_runtime_extends_it():
    limits = {"max_input_tokens": 100_000, "max_sequence_tokens": 131_072, "max_batch_size": 1}
    model = Brought({**of(rope_scaling=YARN)}, gib=15)

    plan(model, "vllm", "NVIDIA-H100-80GB-HBM3", **limits)
    with refused(what="that llmapi derives", expected="at most 32768"):
        plan(model, "llmapi", "NVIDIA-H100-80GB-HBM3", **limits)
