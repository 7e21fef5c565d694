"""Grammars of the official suite's schemas, against its values: none that a schema forbids is ever allowed.

tests/fixtures/json_schema_suite is tests/draft2020-12 of json-schema-org/JSON-Schema-Test-Suite at 44401e0c, without
its descriptions: schemas by file, each with values and whether they are valid.
"""

import gzip
import json
from collections import Counter

import pytest

from slipway.tasks.contracts.wire.json_schema import SchemaError, grammar_of
from tests.contracts.wheels.test_grammars_and_xgrammar import TOKENIZER, packages
from tests.contracts.wheels.xgrammar_judge import VERSIONS, Judge
from tests.support.paths import REPOSITORY

SUITE = json.loads(gzip.decompress((REPOSITORY / "tests/fixtures/json_schema_suite/draft2020-12.json.gz").read_bytes()))
FORMATS = "optional/format/"
"""Values of these files are judged as texts: only with a type is a format enforced."""
TAKEN = 220
"""Of 461 schemas; the others are refused by the name of what is not enforced."""


@pytest.fixture(scope="module")
def judge():
    with Judge(VERSIONS[-1], packages(f"xgrammar-{VERSIONS[-1]}"), TOKENIZER) as made:
        yield made


def cases():
    for file, groups in SUITE.items():
        for group in groups:
            schema, values = group["schema"], group["tests"]
            if file.startswith(FORMATS) and isinstance(schema, dict):
                schema, values = {**schema, "type": "string"}, [each for each in values if isinstance(each[0], str)]
            yield file, schema, values


def test_no_grammar_of_the_official_suite_allows_what_its_schema_forbids(judge):
    counted, wrong = Counter(), []
    for file, schema, values in cases():
        try:
            grammar = grammar_of(json.dumps(schema))
        except SchemaError:
            continue
        texts = [json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass") for value, _ in values]
        allowed, _ = judge.judge(grammar, texts)
        counted["taken"] += 1
        for (value, is_valid), is_allowed in zip(values, allowed, strict=True):
            counted[is_valid, is_allowed] += 1
            if is_allowed and not is_valid:
                wrong.append((file, schema, value))

    assert wrong == []
    assert counted["taken"] >= TAKEN
    # an answer has properties in the schema's order and only those that it names, and formats in their usual forms
    assert counted[True, True] > counted[True, False]
