"""Answers to schemas, drawn by the engine's own compiled grammar: any token that it allows, whatever a model would say."""

import json
import sys

import numpy as np
import pytest

from slipway.tasks.contracts.wire.json_schema import grammar_of
from tests.support.json_schemas import TABLE, validator
from tests.support.paths import REPOSITORY

sys.path[:0] = [str(REPOSITORY / "model_repository_templates" / each) for each in ("openvino/model/1", "shared")]
from grammar_judge import empty_model  # noqa: E402 - found by the path above

SEEDS, TOKENS = range(24), 120
UNLIKELY = -3.0
ENDING = (b'"', b"}", b"]", b",", b":")


@pytest.fixture(scope="module")
def walk(engine):
    """A function that draws an answer to a grammar; None where it did not end."""
    import openvino as ov
    import openvino_genai as genai

    tokenizer = genai.Tokenizer(str(engine))
    tokens = {number: token for token, number in tokenizer.get_vocab().items()}
    logits = np.full(1 + max(tokens), UNLIKELY)
    logits[[number for number, token in tokens.items() if token.strip() in ENDING]] = 0
    end = tokenizer.get_eos_token_id()
    logits[end] = 0
    config = genai.GenerationConfig()
    config.set_eos_token_id(end)
    xml, weights = empty_model(logits)
    pipeline = genai.LLMPipeline(xml, weights, tokenizer, "CPU", config, ATTENTION_BACKEND="SDPA")

    def draw(grammar, seed):
        chosen = pipeline.get_generation_config()
        chosen.max_new_tokens, chosen.do_sample, chosen.top_k, chosen.rng_seed = TOKENS, True, len(logits), seed
        chosen.structured_output_config = genai.StructuredOutputConfig(grammar=grammar)
        ids = list(pipeline.generate(ov.Tensor(np.zeros((1, 1), dtype=np.int64)), chosen).tokens[0])
        if ids and ids[-1] == end:
            ids.pop()
        elif len(ids) >= TOKENS:
            return None
        return b"".join(tokens[number] for number in ids)

    return draw


@pytest.mark.parametrize("schema", TABLE, ids=json.dumps)
def test_every_answer_that_ends_obeys_its_schema(walk, schema):
    grammar = grammar_of(json.dumps(schema))
    answers = [answer for answer in (walk(grammar, seed) for seed in SEEDS) if answer is not None]

    assert answers
    for answer in answers:
        validator(schema).validate(json.loads(answer.decode()))
