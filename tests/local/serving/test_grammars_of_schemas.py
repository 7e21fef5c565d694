"""Answers to schemas, drawn by the engine's own compiled grammar: any token that it allows, whatever a model would say."""

import json
import sys

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from tasks.contracts.wire.json_schema import grammar_of
from tests.support.paths import REPOSITORY

sys.path[:0] = [str(REPOSITORY / "model_repository_templates" / each) for each in ("openvino/model/1", "shared")]
from grammar_judge import empty_model  # noqa: E402 - found by the path above

SEEDS, TOKENS = range(24), 120
UNLIKELY = -3.0
ENDING = (b'"', b"}", b"]", b",", b":")
CHECKER = Draft202012Validator.FORMAT_CHECKER

NODE = {"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}}, "required": ["n"]}
SMALL = {"type": "integer", "minimum": 1, "maximum": 3}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": SMALL}, "required": ["kind", "lives"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "owner": {"type": "null"}}}
ZOD_EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
SCHEMAS = [
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "minimum": 0.5, "maximum": 0.75},
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "number", "minimum": -1e-5, "maximum": 2.5e-7},
    {"type": "number", "multipleOf": 0.25, "minimum": -3, "maximum": 3},
    {"type": "integer", "minimum": 7},
    {"type": "integer", "minimum": 10, "maximum": 120},
    {"type": "integer", "maximum": -3},
    {"type": "integer", "multipleOf": 7},
    {"type": "string", "maxLength": 10},
    {"type": "string", "minLength": 3, "maxLength": 3},
    *(
        {"type": "string", "format": name}
        for name in ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")
    ),
    {"type": "string", "format": "email", "pattern": ZOD_EMAIL},
    {"type": "string", "pattern": r"^(1|1\.25|1\.5|1\.75)$"},
    {"type": "string", "pattern": "a.c", "maxLength": 5},
    {"enum": ["1", "1.25", "1.5", "1.75", 1, 1.25, 1.5, 1.75, None]},
    {"const": "x\ny"},
    {"type": "object", "properties": {"é": SMALL, 'b"c': {"type": "null"}}, "required": ["é"]},
    {"type": "object", "properties": {"a": SMALL}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "propertyNames": {"pattern": "^[a-c]{1,2}$"}, "additionalProperties": SMALL, "maxProperties": 3},
    {"type": "array", "prefixItems": [SMALL, {"type": "null"}], "minItems": 2, "maxItems": 2},
    {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "boolean"}, "maxItems": 3},
    {"type": ["string", "null"], "maxLength": 2},
    {"oneOf": [CAT, DOG]},
    {"$ref": "#/$defs/N", "$defs": {"N": NODE}},
]


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


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_every_answer_that_ends_obeys_its_schema(walk, schema):
    validator, grammar = Draft202012Validator(schema, format_checker=CHECKER), grammar_of(json.dumps(schema))
    answers = [answer for answer in (walk(grammar, seed) for seed in SEEDS) if answer is not None]

    assert answers
    for answer in answers:
        validator.validate(json.loads(answer.decode()))
