"""Options of cache and prompts: what each runtime takes, and the host memory that a pod requests for its cache."""

import pytest

from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.site import quantity
from slipway.tasks.engines.preflight.engine_options import check_options
from slipway.tasks.engines.preflight.memory_fit import BATCHED_TOKENS, batched_tokens
from slipway.tasks.engines.registry import planner_for
from slipway.tasks.serving.rendered.groups import placed_together
from tests.fakes.documents.gpu_site import SHAPE, gpu_site
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused

GIB = 2**30
CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl"}


def asked(kind="llmapi", quantization="none", kv_cache="none", name="demo", serving=(), **engine):
    settings = {**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-A10G", **engine}
    texts = None if (quantization, kv_cache) == ("none", "none") else CALIBRATION
    precision = {"format": quantization, "kv_cache": kv_cache, "calibration": texts}
    return spec(name=name, engine=settings, quantization=precision, serving=dict(serving))


def memory_of(asked):
    return quantity(ResolvedRelease(asked, gpu_site()).serving.shape.memory)


@pytest.mark.parametrize("kind", ["trt-engine", "llmapi", "vllm"])
@pytest.mark.parametrize(("tensor", "pods_gpus"), [(1, 1), (4, 4)])
def test_a_pod_requests_the_host_memory_of_each_of_its_gpus_besides_its_shape(kind, tensor, pods_gpus):
    without = asked(kind, tensor_parallel=tensor)
    with_cache = asked(kind, tensor_parallel=tensor, options={"kv_cache_host_gib": 1.5})

    assert memory_of(without) == quantity(SHAPE["memory"])
    assert memory_of(with_cache) == quantity(SHAPE["memory"]) + pods_gpus * 1.5 * GIB


def test_each_pod_over_several_nodes_requests_the_memory_of_its_own_gpus():
    over_nodes = asked("trt-engine", tensor_parallel=4, pipeline_parallel=2, options={"kv_cache_host_gib": 2})

    assert memory_of(over_nodes) == quantity(SHAPE["memory"]) + 4 * 2 * GIB


def test_only_the_step_that_boots_the_server_requests_the_memory_too():
    release = ResolvedRelease(asked("trt-engine", tensor_parallel=2, options={"kv_cache_host_gib": 2}), gpu_site())
    memory = {step: quantity(release.step(step).shape.memory) for step in ("quantize", "build", "assemble")}

    assert memory == {**dict.fromkeys(memory, quantity(SHAPE["memory"])), "assemble": quantity("68Gi")}


def test_members_of_a_group_add_up_their_host_memory():
    first, second = (
        asked(name=name, serving={"group": "chat", "gpus": gpus}, options={"kv_cache_host_gib": size})
        for name, gpus, size in (("first", [0], 1), ("second", [1], 4))
    )

    assert quantity(
        placed_together([ResolvedRelease(each, gpu_site()) for each in (first, second)]).shape.memory
    ) == quantity("69Gi")


@pytest.mark.parametrize("size", [0, -1, True, "16", 1e6])
def test_sizes_that_no_host_has_are_refused(size):
    with refused(what="engine.options.kv_cache_host_gib", found=repr(size)):
        check_options(asked(options={"kv_cache_host_gib": size}))


def check(asked):
    """As far as the options: the model's documents are missing."""
    planner_for(asked.engine.kind).check(ResolvedRelease(asked, gpu_site()), None, {})


@pytest.mark.parametrize("option", [{"kv_cache_host_gib": 1}, {"chunked_prefill": True}])
def test_an_engine_without_paged_attention_takes_neither(option):
    with refused(what=f"engine.options.{next(iter(option))}", found="kv_cache fp8"):
        check(asked("trt-engine", "int4_awq", "fp8", gpu="NVIDIA-L4", options=option))


def test_vllm_is_not_asked_for_what_it_does_not_support():
    with refused(what="engine.options.chunked_prefill cannot be false for vllm", remedy="set it to true"):
        check(asked("vllm", options={"chunked_prefill": False}))


def test_a_step_need_not_hold_a_prompt_that_several_steps_compute():
    long = {"max_batch_size": 8, "max_input_tokens": 30000, "max_sequence_tokens": 32000}
    chunked = asked(**long, options={"chunked_prefill": True, "max_num_tokens": 2048})

    check_options(chunked)
    assert batched_tokens(asked(**long)) == 30000
    assert batched_tokens(asked(**long, options={"chunked_prefill": True})) == BATCHED_TOKENS
    with refused(what="a step holds a whole prompt", remedy="chunked_prefill"):
        check_options(asked(**long, options={"max_num_tokens": 2048}))


def test_a_step_holds_a_token_of_every_sequence():
    with refused(what="a step holds a token of every sequence", expected="at least 8 (max_batch_size)"):
        check_options(asked(max_batch_size=8, options={"chunked_prefill": True, "max_num_tokens": 4}))
