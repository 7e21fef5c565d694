"""What generation_config.json of a checkpoint gives to a request on openvino: what ends an answer, and nothing else."""

import json

import pytest

from tests.local.families.releases import TEXTS, generated
from tests.local.families.test_architectures_of_their_own_kind import built

PROMPT = list(range(10, 30))
MAX_TOKENS = 12


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    description, _ = built("llama", folder, [TEXTS[0]["text"]])
    return folder / "engine", description


def answer(engine, **generation):
    """Tokens of a greedy answer, with these fields in the model's own configuration."""
    folder, description = engine
    file = folder / "generation_config.json"
    file.unlink(missing_ok=True)  # it is a link to the checkpoint's
    file.write_text(json.dumps(generation))
    return generated(folder, description, PROMPT, MAX_TOKENS)


def test_beams_and_forbidden_repetitions_of_the_model_do_not_reach_a_request(engine):
    plain = answer(engine, eos_token_id=1)

    assert len(plain) == MAX_TOKENS
    assert answer(engine, eos_token_id=1, num_beams=2, no_repeat_ngram_size=1, num_assistant_tokens=5) == plain


def test_the_model_s_own_ends_do(engine):
    plain = answer(engine, eos_token_id=1)

    assert answer(engine, eos_token_id=[1, plain[3]]) == plain[: plain.index(plain[3])]
