"""What is downloaded beside the weights can never be a pickle."""

from fnmatch import fnmatchcase

import pytest

from slipway.tasks.engines.checkpoint.files import COMPANIONS

PICKLES = ("tokenizer.pkl", "tokenizer.bin", "tokenizer.pt", "tokenizer.model.pkl", "vocab.pkl", "chat_template.pkl")
WANTED = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tokenizer.model.v3", "vocab.json", "vocab.txt")


def taken(name):
    return any(fnmatchcase(name, pattern) for pattern in COMPANIONS)


@pytest.mark.parametrize("name", PICKLES)
def test_no_pattern_takes_a_pickle(name):
    assert not taken(name)


@pytest.mark.parametrize("name", [*WANTED, "merges.txt", "chat_template.jinja", "generation_config.json"])
def test_what_a_tokenizer_reads_is_taken(name):
    assert taken(name)


@pytest.mark.parametrize(
    "name", ["processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"]
)
def test_what_a_processor_reads_is_taken(name):
    """Servers of models that also see load it at their start, and end without it."""
    assert taken(name)
