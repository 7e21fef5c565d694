"""The index decides which weights a model has, whatever their files are called."""

import pytest

from tests.fakes.hubs.brought_models import LLAMA, Brought, plan
from tests.support.refused import refused

GIB = 2**30
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def indexed(weights, named):
    index = {"metadata": {}, "weight_map": {f"tensor.{number}": name for number, name in enumerate(named)}}
    return Brought(LLAMA, weights=weights, documents={"model.safetensors.index.json": index})


def weights_of(model):
    files, _ = plan(model, "vllm", "NVIDIA-L4")
    return [name for name in files if name.endswith(".safetensors")]


def test_a_file_of_another_name_that_the_index_names_is_downloaded():
    weights = {FIRST: 7 * GIB, SECOND: 7 * GIB, "mtp.safetensors": GIB // 4}

    assert weights_of(indexed(weights, weights)) == [FIRST, SECOND, "mtp.safetensors"]


@pytest.mark.parametrize("other", ["consolidated.safetensors", "adapter_model.safetensors", "extra.safetensors"])
def test_a_file_that_the_index_does_not_name_is_left_out(other):
    assert weights_of(indexed({FIRST: 7 * GIB, SECOND: 7 * GIB, other: 14 * GIB}, [FIRST, SECOND])) == [FIRST, SECOND]


def test_without_an_index_the_file_that_transformers_names_is_the_model():
    weights = {"model.safetensors": 15 * GIB, "consolidated.safetensors": 15 * GIB}

    assert weights_of(Brought(LLAMA, weights=weights)) == ["model.safetensors"]


def test_a_stale_file_that_transformers_prefers_to_the_shards_is_refused():
    weights = {FIRST: 7 * GIB, SECOND: 7 * GIB, "model.safetensors": 15 * GIB}

    with refused(what="weights twice", found="model.safetensors beside the 2 files"):
        weights_of(indexed(weights, [FIRST, SECOND]))
    with refused(what="weights twice", found="without model.safetensors.index.json"):
        weights_of(Brought(LLAMA, weights=weights))


def test_a_shard_that_the_index_names_and_nobody_uploaded_is_missed_at_plan():
    with refused(what="lacks weights", found=SECOND, expected="all 2 files"):
        weights_of(indexed({FIRST: 7 * GIB}, [FIRST, SECOND]))


ADAPTER = {"adapter_model.safetensors": GIB}
OTHERS = {"consolidated-00001-of-00002.safetensors": 7 * GIB, "consolidated-00002-of-00002.safetensors": 7 * GIB}
UNINDEXED = {FIRST: 7 * GIB, SECOND: 7 * GIB}


def test_an_adapter_is_no_model():
    with refused(what="is a LoRA adapter", remedy="`engine.lora`"):
        weights_of(Brought(LLAMA, weights=ADAPTER))


@pytest.mark.parametrize("weights", [OTHERS, UNINDEXED])
@pytest.mark.parametrize(("kind", "gpu"), [("openvino", None), ("trt-engine", "NVIDIA-L4"), ("vllm", "NVIDIA-L4")])
def test_weights_are_changed_only_where_transformers_finds_them(weights, kind, gpu):
    assert weights_of(Brought(LLAMA, weights=weights)) == sorted(weights)
    with refused(what="looks for them under other names", found=min(weights)):
        plan(Brought(LLAMA, weights=weights), kind, gpu, "int8" if kind == "openvino" else "fp8")
