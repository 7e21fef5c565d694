"""Mixtures of experts: which kinds share out experts over ranks, and which models have any."""

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.stored.plan import Datasets, Source, Tools, stage_fields
from slipway.tasks.engines.preflight.experts import check_experts, experts_of
from slipway.tasks.engines.preflight.memory_fit import need_of
from slipway.tasks.engines.preflight.model_shape import shape_of
from slipway.tasks.engines.trtllm.families import CONVERTERS, check_converted
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused

QWEN3_MOE = {"num_experts": 128, "num_hidden_layers": 48}
MIXTRAL = {"num_local_experts": 8, "num_hidden_layers": 32}
DEEPSEEK = {"n_routed_experts": 256, "num_hidden_layers": 61}
LLAMA_4 = {"text_config": {"num_local_experts": 16, "num_hidden_layers": 48}}
DENSE = {"num_hidden_layers": 32, "num_attention_heads": 32}


def asked(kind="llmapi", quantization="none", **engine):
    settings = {**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-H100", "tensor_parallel": 4, **engine}
    return spec(engine=settings, quantization={"format": quantization})


@pytest.mark.parametrize(
    ("config", "experts"), [(QWEN3_MOE, 128), (MIXTRAL, 8), (DEEPSEEK, 256), (LLAMA_4, 16), (DENSE, 0)]
)
def test_experts_are_counted_by_every_name_that_configurations_have_for_them(config, experts):
    assert experts_of(config) == experts


@pytest.mark.parametrize("engine", [{"expert_parallel": 2}, {"attention_dp": True}])
@pytest.mark.parametrize("config", [DENSE, {**DENSE, "num_local_experts": 0}])
def test_a_model_without_experts_cannot_share_them_out(config, engine):
    with refused(what=f"engine.{next(iter(engine))} is for mixtures of experts", remedy="Remove"):
        check_experts(asked(**engine), config)


def test_a_model_without_experts_needs_no_more_than_before():
    check_experts(asked(), DENSE)


@pytest.mark.parametrize("kind", ["trt-engine", "llmapi"])
def test_experts_that_no_rank_would_hold_are_refused_where_the_runtime_drops_them(kind):
    with refused(what="expert_parallel 4 does not divide the experts", found="6 experts", remedy="one of 1, 2"):
        check_experts(asked(kind, expert_parallel=4), {**MIXTRAL, "num_local_experts": 6})


SHARING = {
    *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"),
    *("Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
}


@pytest.mark.parametrize("architecture", sorted(SHARING))
def test_scripts_that_share_out_experts_may_be_asked_to(architecture):
    check_converted(architecture, asked("trt-engine", expert_parallel=2).engine)


@pytest.mark.parametrize("architecture", sorted(CONVERTERS.keys() - SHARING))
def test_scripts_that_share_out_no_experts_are_not_asked_to(architecture):
    engine = {"tensor_parallel": 4 if CONVERTERS[architecture].tensor else 1}
    check_converted(architecture, asked("trt-engine", **engine).engine)
    with refused(what="does not split weights", expected="1", remedy="llmapi"):
        check_converted(architecture, asked("trt-engine", expert_parallel=2).engine)


def test_vllm_gives_some_ranks_an_expert_more():
    check_experts(asked("vllm", expert_parallel=4), {**MIXTRAL, "num_local_experts": 6})


@pytest.mark.parametrize(
    ("kind", "engine", "why"),
    [
        ("llmapi", {"expert_parallel": 3}, "does not divide tensor_parallel 4"),
        ("llmapi", {"expert_parallel": 8}, "does not divide tensor_parallel 4"),
        ("vllm", {"expert_parallel": 2}, "over all ranks of tensor_parallel 4, or over none"),
        ("vllm", {"attention_dp": True}, "choose llmapi"),
        ("trt-engine", {"attention_dp": True}, "choose llmapi"),
        ("llmapi", {"attention_dp": True, "tensor_parallel": 1}, "tensor_parallel is 1"),
    ],
)
def test_what_a_kind_cannot_share_out_is_refused_by_name(kind, engine, why):
    with pytest.raises(ValidationError, match=why):
        asked(kind, **engine)


def test_no_cpu_engine_shares_out_experts():
    with pytest.raises(ValidationError, match="openvino cannot share out experts"):
        spec(engine={**SPEC["engine"], "expert_parallel": 2})


def fields(**engine):
    source = Source(repo="org/model", revision="main", commit="c" * 40, files=())
    tools = Tools(producers={}, templates={})
    return stage_fields(asked(**engine), source, Datasets(), tools)["build"]["engine"]


def test_a_spec_that_does_not_mention_experts_keeps_its_key():
    assert not {"expert_parallel", "attention_dp"} & fields().keys()
    assert fields(expert_parallel=2)["expert_parallel"] == 2
    assert fields(attention_dp=True)["attention_dp"] is True


SHAPE = shape_of(
    {
        "hidden_size": 4096,
        "intermediate_size": 1536,
        "num_hidden_layers": 94,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
    }
)


def test_attention_of_its_own_requests_puts_attention_and_the_last_layer_whole_on_every_rank():
    """Qwen3-235B-A22B: 4 ranks hold a quarter of each, or all of it."""
    source_bytes = 2 * 235_000_000_000
    split, whole = need_of(asked(), SHAPE, source_bytes), need_of(asked(attention_dp=True), SHAPE, source_bytes)
    attention = 94 * 2 * 4096 * (64 + 4) * 128 * 2
    last_layer = 151936 * 4096 * 2

    assert whole.weights - split.weights == pytest.approx(3 / 4 * (attention + last_layer), rel=1e-6)


def test_attention_of_its_own_requests_keeps_every_head_of_them_in_the_cache():
    source_bytes = 2 * 235_000_000_000

    assert (
        need_of(asked(attention_dp=True), SHAPE, source_bytes).kv_cache
        == 4 * need_of(asked(), SHAPE, source_bytes).kv_cache
    )
