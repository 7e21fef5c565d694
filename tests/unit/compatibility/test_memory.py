"""Whether a model fits on its GPUs, by numbers that were measured elsewhere or can be counted by hand."""

import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Gpu
from slipway.tasks.engines.preflight.memory_fit import GIB, MemoryFit, lora_slots, need_of
from slipway.tasks.engines.preflight.model_shape import check_parallel, shape_of
from slipway.tasks.engines.preflight.suggestions import check_fit, queueing, suggestions_for
from tests.fakes.hubs.public_hub import MODELS, weights_bytes
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused

LLAMA_8B, LLAMA_70B, MISTRAL = (
    "meta-llama/Meta-Llama-3-8B-Instruct",
    "meta-llama/Meta-Llama-3-70B-Instruct",
    "mistralai/Mistral-7B-Instruct-v0.2",
)
L4 = Gpu(memory_gib=22.5, per_node=1, architecture="sm_89")
H100 = Gpu(memory_gib=79.6, per_node=8, architecture="sm_90")
LIMITS = {"max_batch_size": 1, "max_input_tokens": 1, "max_sequence_tokens": 4096}


def asked(repo, quantization="none", kv_cache="none", kind="trt-engine", **engine):
    calibration = {"dataset": "hf://datasets/org/texts@main/a.jsonl"}
    return spec(
        source={"repo": repo},
        quantization={"format": quantization, "kv_cache": kv_cache, "calibration": calibration},
        engine={**SPEC["engine"], **LIMITS, "kind": kind, "gpu": "NVIDIA-L4", **engine},
    )


def shape(repo):
    return shape_of(MODELS[repo]["config"])


def need(repo, *args, **kwargs):
    return need_of(asked(repo, *args, **kwargs), shape(repo), weights_bytes(repo))


def fitting(repo, gpu, *args, **kwargs):
    return MemoryFit(asked(repo, *args, **kwargs), gpu, shape(repo), weights_bytes(repo), quantized=False)


def anything(_):
    """Plan's other checks, none of which refuses."""
    return True


def test_weights_at_four_bits_are_as_large_as_an_engine_that_was_built():
    # rank0.engine of Llama 3 8B in int4_awq: 5.4 GiB (du -h, infracloud.io, "Running Llama 3 with Triton and TensorRT-LLM")
    assert need(LLAMA_8B, "int4_awq").weights / GIB == pytest.approx(5.4, rel=0.03)


def test_weights_that_keep_their_precision_are_as_large_as_their_files():
    assert need(LLAMA_8B).weights == pytest.approx(weights_bytes(LLAMA_8B), rel=0.001)


@pytest.mark.parametrize(
    ("kv_cache", "tensor", "pipeline", "bytes_per_token"),
    [
        ("none", 1, 1, 131072),
        ("fp8", 1, 1, 65536),
        ("none", 4, 1, 32768),
        ("none", 4, 2, 16384),
        ("none", 16, 1, 16384),
    ],
)
def test_the_cache_is_two_tensors_a_layer_and_token(kv_cache, tensor, pipeline, bytes_per_token):
    found = need(LLAMA_8B, kv_cache=kv_cache, tensor_parallel=tensor, pipeline_parallel=pipeline, max_batch_size=3)

    assert found.kv_cache == 4096 * bytes_per_token


def test_ranks_share_layers_and_each_keeps_the_embedding():
    single, split = need(LLAMA_70B), need(LLAMA_70B, tensor_parallel=4)
    embedding = 128256 * 8192 * 2

    assert split.weights == pytest.approx((single.weights - 2 * embedding) / 4 + embedding + embedding / 4, rel=1e-6)


def test_a_quantized_checkpoint_weighs_what_its_files_do():
    found = need_of(asked(MISTRAL, kind="vllm"), shape(MISTRAL), 4 * GIB, quantized=True)

    assert found.weights == pytest.approx(4 * GIB, rel=0.001)


def adapted(slots, *, adapters=4, **engine):
    lora = [{"name": f"a{number}", "repo": "org/a"} for number in range(adapters)]
    return asked(MISTRAL, kind="vllm", lora=lora, max_batch_size=8, options={"max_loras": slots}, **engine)


def test_adapters_take_the_highest_rank_at_every_linear_layer_for_each_that_is_there_at_once():
    # 32 layers, rank 64, 16 bits: q and o 8192 each, k and v 5120 each, gate, up and down 18432 each
    one = 32 * 64 * 2 * (2 * 8192 + 2 * 5120 + 3 * 18432)

    found = need_of(adapted(3), shape(MISTRAL), weights_bytes(MISTRAL), lora_rank=64)

    assert found.adapters == 3 * one
    assert need_of(adapted(3), shape(MISTRAL), weights_bytes(MISTRAL)).adapters == 0
    assert found.total - found.adapters == need_of(adapted(3), shape(MISTRAL), weights_bytes(MISTRAL)).total


def test_no_more_adapters_are_there_at_once_than_a_batch_has_sequences():
    assert [lora_slots(adapted(9, adapters=count)) for count in (4, 8, 12)] == [4, 8, 8]


def test_adapters_that_do_not_fit_are_refused_with_fewer_at_once():
    wrong = MemoryFit(adapted(4, max_sequence_tokens=2048), L4, shape(MISTRAL), weights_bytes(MISTRAL), False, 512)

    with refused(what="adapters 10.0, KV cache 0.2", remedy="options.max_loras 1"):
        check_fit(wrong, anything)
    assert wrong.fits(options={"max_loras": 1})


def test_what_fits_passes():
    check_fit(fitting(LLAMA_8B, L4, "int4_awq", max_batch_size=16), anything)
    check_fit(
        fitting(LLAMA_70B, H100, "fp8", "fp8", tensor_parallel=4, max_batch_size=64, max_sequence_tokens=8192), anything
    )


def test_a_cache_without_room_for_one_sequence_is_refused_with_the_length_that_fits():
    wrong = fitting(LLAMA_8B, L4, "int4_awq", max_batch_size=64, max_sequence_tokens=200_000)

    with refused(what="KV cache 24.4 for one sequence of 200000 tokens", remedy="would fit: max_sequence_tokens "):
        check_fit(wrong, anything)

    length = int(suggestions_for(wrong, anything)[0].removeprefix("max_sequence_tokens "))
    assert wrong.fits(max_sequence_tokens=length)
    assert not wrong.fits(max_sequence_tokens=length + 1)


def test_a_cache_that_holds_fewer_sequences_than_a_batch_is_a_warning_with_their_number():
    queued = fitting(LLAMA_8B, L4, "int4_awq", max_batch_size=64)

    check_fit(queued, anything)

    assert "holds 27 of max_batch_size 64 sequences of 4096 tokens" in queueing(queued)


def test_a_cache_that_holds_a_whole_batch_is_no_warning():
    assert queueing(fitting(LLAMA_8B, L4, "int4_awq", max_batch_size=27)) is None


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        # TensorRT-LLM's is of what is free once the model is loaded, vLLM's of the whole GPU
        ("trt-engine", lambda rest: 0.6 * (22.5 - rest)),
        ("llmapi", lambda rest: 0.6 * (22.5 - rest)),
        ("vllm", lambda rest: 0.6 * 22.5 - rest),
    ],
)
def test_the_share_of_the_cache_is_what_the_runtime_means_by_it(kind, left):
    small = fitting(LLAMA_8B, L4, "fp8", kind=kind, options={"kv_cache_fraction": 0.6})
    need = small.need()

    assert small.room(need) / GIB == pytest.approx(left((need.weights + need.workspace) / GIB))


def test_a_cache_that_its_share_of_the_free_memory_holds_passes():
    # (22.5 - 5.3 - 1.7) * 0.6 = 9.3 GiB for 8
    assert queueing(fitting(LLAMA_8B, L4, "int4_awq", max_batch_size=16, options={"kv_cache_fraction": 0.6})) is None


def test_a_batch_whose_logits_take_the_room_of_a_sequence_is_lowered():
    wrong = fitting(LLAMA_8B, L4, kind="vllm", max_batch_size=2048, max_sequence_tokens=24_000)

    batch = int(suggestions_for(wrong, anything)[1].removeprefix("max_batch_size "))

    assert wrong.fits(max_batch_size=batch)
    assert not wrong.fits(max_batch_size=batch + 1)


def test_a_change_that_plan_would_refuse_is_not_named():
    wrong = fitting(LLAMA_8B, L4, "int4_awq", max_batch_size=1, max_sequence_tokens=200_000)

    found = suggestions_for(wrong, lambda changed: changed.engine.max_sequence_tokens == 200_000)

    assert found == ["kv_cache fp8", "kv_cache int8"]


def test_weights_that_do_not_fit_are_refused_with_formats_and_caches_that_the_gpu_has():
    with pytest.raises(InputError) as caught:
        check_fit(fitting(LLAMA_8B, L4, max_batch_size=1, max_sequence_tokens=48_000), anything)

    assert "kv_cache fp8" in caught.value.remedy
    assert "format fp8" in caught.value.remedy
    assert "nvfp4" not in caught.value.remedy


def test_more_gpus_of_the_node_are_a_remedy():
    four = Gpu(memory_gib=22.5, per_node=4, architecture="sm_86")

    remedies = suggestions_for(fitting(LLAMA_8B, four, max_sequence_tokens=65_536), anything)

    assert remedies[-1] == "tensor_parallel 2"
    check_fit(fitting(LLAMA_8B, four, max_sequence_tokens=65_536, tensor_parallel=2), anything)


def test_what_fits_nowhere_on_this_gpu_is_sent_to_a_larger_one():
    with refused(remedy="Choose a GPU with more memory"):
        check_fit(fitting(LLAMA_70B, L4), anything)


@pytest.mark.parametrize(
    ("tensor", "pipeline", "fields"),
    [
        (3, 1, {"found": "32 attention heads and 8", "remedy": "one of 1, 2, 4, 8, 16, 32."}),
        (1, 33, {"what": "pipeline_parallel 33", "expected": "at most 32"}),
    ],
)
def test_splits_that_heads_or_layers_do_not_allow_are_refused(tensor, pipeline, fields):
    with refused(**fields):
        check_parallel(asked(LLAMA_8B, tensor_parallel=tensor, pipeline_parallel=pipeline), shape(LLAMA_8B))
