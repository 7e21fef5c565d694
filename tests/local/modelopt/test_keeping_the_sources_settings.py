"""Checkpoints without a default in them, quantized by ModelOpt for real, as every version of transformers in a server reads them."""

import json

import pytest

from slipway.tasks.engines.checkpoint.config_reading import reading
from tests.fixtures.odd_checkpoints import FORMS, LLAMA3, THETA, config_of
from tests.local.modelopt.runs import DROPPED, ODD

LIKE = {"fp8": 0.985, "int4_awq": 0.88}
"""Least likeness of the logits of a source and of what was made of it, by format. Measured: 0.991 and 0.992 in fp8, 0.913 and
0.907 in int4_awq; without one of DROPPED at most 0.979."""
GENERATIONS = {"transformers4": 4, "modelopt": 5}
FIELDS = ("num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps", "tie_word_embeddings")
FIELDS += ("max_position_embeddings", "attention_bias", "mlp_bias", "sliding_window", "hidden_act", "eos_token_id")


@pytest.fixture(scope="module")
def exports(environment, read_of, results):
    """The version's number, and what it reads of each checkpoint that was made and of each source in the older form."""
    folders = {key: results[key]["out"] for key in ODD}
    folders |= {key[0]: results[key]["source"] for key in ODD if key[1] == "older"}
    return GENERATIONS[environment], {key: read_of[str(folder)] for key, folder in folders.items()}


@pytest.mark.parametrize("made", ODD, ids=" ".join)
def test_a_server_reads_the_positions_of_the_source(exports, made):
    generation, found = exports
    export, model = found[made], made[0]
    scaling = {"rope_type": "llama3", **LLAMA3} if model == "llama" else None

    if generation == 4:
        assert (export["rope_theta"], export["rope_scaling"]) == (THETA[model], scaling)
    else:
        assert export["rope_parameters"] == {"rope_theta": THETA[model], **(scaling or {"rope_type": "default"})}


@pytest.mark.parametrize("made", ODD, ids=" ".join)
def test_a_server_reads_every_other_field_of_the_source_too(exports, made):
    _, found = exports
    export, source = (
        {name: value for name, value in found[key].items() if name not in ("quantization_config", "rope_parameters")}
        for key in (made, made[0])
    )

    assert export == source


@pytest.mark.parametrize("made", ODD, ids=" ".join)
def test_all_that_a_source_says_of_itself_is_in_what_was_made_of_it(results, made):
    source, out = (json.loads((results[made][name] / "config.json").read_text()) for name in ("source", "out"))

    assert {name: out.get(name) for name in source} == source
    assert set(out) - set(source) <= {"quantization_config", "rope_theta", "rope_scaling"}


@pytest.mark.parametrize("made", ODD, ids=" ".join)
def test_the_documents_beside_it_are_the_sources_own(results, made):
    source, out = results[made]["source"], results[made]["out"]

    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (out / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.parametrize("made", ODD, ids=" ".join)
def test_what_was_written_computes_the_same_with_the_written_configuration(results, made):
    assert results[made]["likeness"] > LIKE[made[-1]]


@pytest.mark.parametrize("model", DROPPED)
def test_each_setting_of_the_fixtures_changes_what_is_computed(quantized_once, odd_checkpoints, model):
    found = quantized_once["dropped"][str(odd_checkpoints[model, "older"])]

    assert set(found) == set(DROPPED[model])
    assert {field for field, likeness in found.items() if likeness > LIKE["fp8"]} == set()


@pytest.mark.parametrize("model", THETA)
def test_the_rules_of_reading_are_those_of_the_versions_themselves(environment, read_of, odd_checkpoints, model):
    generation = GENERATIONS[environment]

    for form in FORMS:
        real, ours = read_of[str(odd_checkpoints[model, form])], reading(config_of(model, form), generation)
        rope = (
            real["rope_parameters"]
            if generation == 5
            else {"rope_theta": real["rope_theta"], **(real["rope_scaling"] or {})}
        )
        ours.setdefault("rope.rope_theta", 10000.0)  # the default of both architectures
        assert {f"rope.{name}": value for name, value in {"rope_type": "default", **rope}.items()} == {
            name: value for name, value in ours.items() if name.startswith("rope.")
        }
        assert {name: real[name] for name in FIELDS if name in ours} == {
            name: ours[name] for name in FIELDS if name in ours
        }
