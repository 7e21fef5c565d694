"""How each version of transformers reads config.json; tests/local/modelopt holds these rules against the versions themselves."""

import pytest

from slipway.tasks.contracts.site.triton_images import STATED_IMAGES
from slipway.tasks.engines.checkpoint.config_reading import (
    GENERATIONS,
    check_readable,
    differences,
    generations_of,
    readable,
    reading,
)
from tests.fixtures.odd_checkpoints import FORMS, LLAMA3, config_of
from tests.support.refused import refused

OLDER = config_of("llama")
EXPORTED = config_of("llama", "newer")


@pytest.mark.parametrize("model", ["llama", "qwen2"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_configuration_in_either_form_is_the_same_model_to_both_versions_once_it_is_completed(
    model, form, generation
):
    served = readable(config_of(model, form))

    assert differences(config_of(model, "older"), served, generation) == []


def test_what_version_5_alone_wrote_is_another_model_to_version_4():
    changed = {name: (expected, found) for name, expected, found in differences(OLDER, EXPORTED, 4)}

    assert changed["rope.rope_theta"] == (500000.0, "absent")
    assert changed["rope.rope_type"] == ("llama3", "default")
    assert changed["rope.low_freq_factor"] == (LLAMA3["low_freq_factor"], "absent")


@pytest.mark.parametrize(
    "field",
    [
        *("max_position_embeddings", "rms_norm_eps", "num_attention_heads", "num_key_value_heads", "head_dim"),
        *("vocab_size", "tie_word_embeddings", "attention_bias", "mlp_bias", "hidden_act", "eos_token_id"),
    ],
)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_field_that_an_export_drops_is_named(field, generation):
    export = {name: value for name, value in OLDER.items() if name != field}

    assert differences(OLDER, export, generation) == [(field, OLDER[field], "absent")]


def test_what_a_source_says_is_kept_and_what_it_has_already_is_not_added():
    assert readable(OLDER) == OLDER
    completed = readable(EXPORTED)
    assert completed["rope_theta"] == 500000.0
    assert completed["rope_scaling"] == {"rope_type": "llama3", **LLAMA3}
    assert {name: completed[name] for name in EXPORTED} == EXPORTED


def test_the_older_name_of_a_kind_of_scaling_is_the_same_kind():
    older = {**OLDER, "rope_scaling": {"type": "linear", "factor": 2.0}}
    newer = {**EXPORTED, "rope_parameters": {"rope_theta": 500000.0, "rope_type": "linear", "factor": 2.0}}

    assert [reading(readable(newer), generation) for generation in GENERATIONS] == [reading(older, 4)] * 2


def test_the_language_model_of_several_parts_is_completed_and_compared_too():
    whole = {"architectures": ["Some"], "text_config": EXPORTED}

    assert readable(whole)["text_config"]["rope_theta"] == 500000.0
    assert ("text_config.rope.rope_theta", 500000.0, "absent") in differences(whole, whole, 4)
    check_readable(whole, GENERATIONS, "org/model")


@pytest.mark.parametrize(
    ("rope", "fields"),
    [
        (
            {"rope_theta": 500000.0, "rope_parameters": {"rope_theta": 70000.0}},
            {"what": "different rope.rope_theta", "found": "500000.0", "expected": "70000.0"},
        ),
        (
            {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1.0, "long_factor": [2.0]}},
            {"what": "different rope."},
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 9.0}, "sliding_attention": {"rope_theta": 1.0}}},
            {"what": "different rope"},
        ),
    ],
)
def test_what_no_form_says_to_both_versions_is_refused(rope, fields):
    with refused(**fields):
        check_readable({"architectures": ["Some"], **rope}, (4,), "org/model")


def test_a_runtime_with_version_5_alone_takes_what_only_version_5_reads():
    check_readable(
        {"rope_parameters": {"full_attention": {"rope_theta": 9.0}}},
        generations_of(STATED_IMAGES["vllm", "26.07"]),
        "a",
    )
