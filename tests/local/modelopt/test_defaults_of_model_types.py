"""Defaults and layers that plan takes for a model type, against the classes of every transformers that reads them."""

import pytest

from slipway.tasks.engines.checkpoint.config_defaults import COLUMNS, FURTHER, ROWS, completed
from slipway.tasks.engines.preflight.model_shape import SLIDING, shape_of
from tests.local.modelopt.configurations import CONFIGURATIONS, SWITCHED, TYPES

NEWER = {"transformers4": {"ministral3"}, "modelopt": set()}
"""Types that a version does not know."""


@pytest.fixture(scope="module")
def read(environment, known):
    """What transformers reads of CONFIGURATIONS, by name."""
    assert {name for name, found in known["defaults"].items() if found is None} == NEWER[environment]
    return {name: found for name, found in known["defaults"].items() if found is not None}


def test_every_default_is_that_of_the_class(read):
    """A field that a class does not have cannot be read from it; a version may have moved it."""
    for name in TYPES.keys() & read.keys():
        expected = dict(zip(COLUMNS, ROWS[name], strict=True)) | FURTHER.get(name, {})
        for field, value in expected.items():
            if value is not None and read[name].get(field) is not None:
                own = read[name][field]
                off = field == "sliding_window" and expected.get("use_sliding_window") is False
                assert own == value or off, f"{name}.{field} is {own}"


def test_dimensions_are_those_of_the_class(read):
    for name in CONFIGURATIONS.keys() & read.keys():
        shape, own = shape_of(CONFIGURATIONS[name]), read[name]
        expected = (own["num_hidden_layers"], own["hidden_size"], own["num_attention_heads"], own["vocab_size"])
        assert (shape.layers, shape.hidden, shape.heads, shape.vocabulary) == expected, name
        if own.get("num_key_value_heads") and not own.get("multi_query"):
            assert shape.kv_heads == own["num_key_value_heads"], name
        if own.get("head_dim") and shape.caches[0].latent is None:
            assert shape.head_dim == own["head_dim"], name
        if own["tie_word_embeddings"] is not None:
            assert shape.tied == own["tie_word_embeddings"], name


def test_layers_have_windows_where_the_class_says_sliding(read):
    compared = 0
    for name in CONFIGURATIONS.keys() & read.keys():
        types = read[name].get("layer_types")
        if types is not None:
            windows = [each.window for each in shape_of(CONFIGURATIONS[name]).caches]
            assert [window is not None for window in windows] == [each == SLIDING for each in types], name
            compared += 1
    assert compared > len(SWITCHED)


def test_a_field_that_is_stated_stays():
    assert completed({"model_type": "gemma3_text", "head_dim": 128})["head_dim"] == 128
