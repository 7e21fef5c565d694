"""engine.overrides: longer sequences by scaled rotary positions, where the runtime reads config.json itself."""

import json

import pytest

from slipway.tasks.contracts.engine.overrides import Overrides
from slipway.tasks.engines.checkpoint.config_reading import GENERATIONS, reading
from slipway.tasks.engines.checkpoint.overriding import overridden
from slipway.tasks.engines.passthrough import link_readable
from tests.fakes.hubs.brought_models import LLAMA, Brought, plan, spec_of
from tests.support.refused import refused

SHORT = {**LLAMA, "max_position_embeddings": 40960, "rope_theta": 1e6}
LONG = {"max_input_tokens": 4096, "max_sequence_tokens": 131072, "max_batch_size": 1}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def scaled(**rope):
    return Overrides.model_validate({"rope_parameters": rope})


@pytest.mark.parametrize("kind", ["vllm", "llmapi"])
def test_a_scaling_lets_a_sequence_be_longer_and_says_what_it_changes(kind):
    with refused(what="above the positions", found="131072", expected="40960"):
        plan(Brought(SHORT), kind, "NVIDIA-H100-80GB-HBM3", **LONG)

    _, warnings = plan(Brought(SHORT), kind, "NVIDIA-H100-80GB-HBM3", **LONG, overrides={"rope_parameters": YARN})

    assert any("scales rotary positions by 4 in every prompt" in warning for warning in warnings)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_both_versions_of_transformers_read_the_scaling_and_the_models_own_base(tmp_path, generation):
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    checkpoint.mkdir()
    out.mkdir()
    (checkpoint / "config.json").write_text(json.dumps(SHORT))

    link_readable(checkpoint, out, scaled(**YARN))

    read = reading(json.loads((out / "config.json").read_text()), generation)
    assert {name: value for name, value in read.items() if "rope" in name or "position" in name} == {
        "max_position_embeddings": 131072,
        "rope.rope_theta": 1e6,
        "rope.rope_type": "yarn",
        "rope.factor": 4.0,
        "rope.original_max_position_embeddings": 32768,
    }


def test_the_language_model_of_several_parts_is_the_one_that_is_scaled():
    config = overridden({"text_config": SHORT, "vision_config": {}}, scaled(rope_type="linear", factor=2.0), "a model")

    assert config["text_config"]["rope_parameters"] == {"rope_theta": 1e6, "rope_type": "linear", "factor": 2.0}
    assert config["text_config"]["max_position_embeddings"] == 40960


@pytest.mark.parametrize(
    "changed",
    [
        {"rope_theta": None},
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        {"rope_theta": None, "rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
        {"max_position_embeddings": None},
    ],
)
def test_positions_that_cannot_be_scaled_are_refused(changed):
    with refused(what="cannot scale the positions of org/model", expected="one rope_theta"):
        plan(Brought({**SHORT, **changed}), "vllm", "NVIDIA-L4", overrides={"rope_parameters": YARN})


def test_more_positions_than_the_model_has_are_not_scaled():
    rope = {**YARN, "original_max_position_embeddings": 1_000_000}

    with refused(what="scales more positions than org/model has", found="1000000", expected="at most 40960"):
        plan(Brought(SHORT), "vllm", "NVIDIA-L4", overrides={"rope_parameters": rope})


@pytest.mark.parametrize("rope_type", ["linear", "dynamic"])
def test_positions_that_a_scaling_does_not_read_are_refused(rope_type):
    with refused(what="original_max_position_embeddings is of yarn"):
        spec_of("vllm", "NVIDIA-L4", overrides={"rope_parameters": {**YARN, "rope_type": rope_type}})


@pytest.mark.parametrize(("kind", "gpu"), [("openvino", None), ("trt-engine", "NVIDIA-L4")])
def test_a_kind_that_does_not_read_the_file_refuses_by_name(kind, gpu):
    with refused(what="remove overrides, or choose engine kind llmapi, vllm"):
        spec_of(kind, gpu, overrides={"rope_parameters": YARN})


@pytest.mark.parametrize("name", ["architectures", "num_experts_per_tok"])
def test_other_fields_of_a_configuration_are_no_overrides(name):
    with refused(what=name):
        spec_of("vllm", "NVIDIA-L4", overrides={"rope_parameters": YARN, name: 1})
