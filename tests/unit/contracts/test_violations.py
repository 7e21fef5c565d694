"""What a person is told about a spec or a site file that is wrong."""

import re
from pathlib import Path

import pytest
import yaml

from slipway.tasks.contracts.documents import parse_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.violations import PATTERNS, PLACE_CHARS, violation_text
from tests.support.yaml_documents import dump_yaml, load_yaml

REPOSITORY = Path(__file__).resolve().parents[3]
DEMO = (REPOSITORY / "specs/demo.yaml").read_text()
LOCAL = (REPOSITORY / "sites/local.yaml").read_text()
REPO = "  repo: slipway/demo-llama\n  revision: v1\n"
EXPECT = DEMO[DEMO.index("  expect:") : DEMO.index("rollout:")]
FILES = [
    (ReleaseSpec, (REPOSITORY / "specs/llama-3-8b-awq-l4.yaml").read_text()),
    (ReleaseSpec, DEMO.replace(REPO, "  uri: mlflow:demo@champion\n")),
    (Site, LOCAL),
]
WORDS_OF_PYDANTIC = re.compile(
    "Input should|inputs are not permitted|Field required|should (be|have|match|contain)|Value error|Unable to|pydantic|constrained"
)
ODD = (None, True, -1, 1.5, 10**9, "", "wr ong", "x" * 2000, [], [1], {}, {"colour": 1})


def refusal(model, text):
    with pytest.raises(InputError) as caught:
        parse_contract(model, text.encode(), "f.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("name: demo-llama", "name: Demo_1", "f.yaml:4:1: name: must be lower-case letters"),
        ("name: demo-llama", "name: 42", "f.yaml:4:1: name: must be text, in quotes"),
        ("name: demo-llama\n", "", "f.yaml:2:1: name: is required"),
        ("  revision: v1", "  revison: v1", "f.yaml:7:3: source.revison: is not a field (did you mean revision?)"),
        ("slipway/demo-llama", "demo", "f.yaml:6:3: source.repo: must be a repository of the Hub such as"),
        ("format: int8", "format: INT8", "(found 'INT8'; did you mean int8?)"),
        ("max_batch_size: 16", "max_batch_size: lots", "f.yaml:12:3: engine.max_batch_size: must be a whole number"),
        ("max_batch_size: 16", "max_batch_size: 0", "engine.max_batch_size: must be at least 1 (found 0)"),
        ("metric: error_rate", "metric: eror_rate", "(found 'eror_rate'; did you mean error_rate?)"),
        ("- {metric: error_rate, at_most: 0.0}", "- error_rate", "f.yaml:35:7: gate.expect.4: must be a mapping"),
        ("concurrency: [1, 4, 8]", "concurrency: 4", "f.yaml:27:5: gate.benchmark.concurrency: must be a list"),
        ("rollout:", "replicas: 3\nrollout:", "replicas: is not a field (did you mean serving.replicas?)"),
        (
            REPO,
            "  uri: s3://b\n",
            "f.yaml:6:3: source.uri: must be a folder such as s3://bucket/folder or pvc://claim/folder, or a",
        ),
        (EXPECT, "  expect: []\n", "gate.expect: must have at least 1 entry (found "),
        ("rollout:", "rollouts:", "rollouts: is not a field (did you mean rollout?)"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_was_meant(right, wrong, told):
    assert told in refusal(ReleaseSpec, DEMO.replace(right, wrong))


def test_every_mistake_has_its_own_line():
    text = DEMO.replace("keep: 2", "keep: 0").replace("format: int8", "format: int3")

    assert refusal(ReleaseSpec, text).startswith("f.yaml:9:3: quantization.format: must be ")
    assert "; line 41:3: rollout.keep: must be at least 1 (found 0)" in refusal(ReleaseSpec, text)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (REPO, "  uri: s3://b\n"),
        (EXPECT, "  expect: [error_rate]\n"),
        ("- {metric: error_rate, at_most: 0.0}", "- error_rate"),
        ("keep: 2", "keep: 0"),
    ],
)
def test_a_mistake_is_told_once(right, wrong):
    assert "; line" not in refusal(ReleaseSpec, DEMO.replace(right, wrong))


def test_a_document_with_many_mistakes_is_composed_once(monkeypatch):
    composed, compose = [], yaml.compose
    monkeypatch.setattr(yaml, "compose", lambda *args, **options: composed.append(1) or compose(*args, **options))

    refusal(ReleaseSpec, DEMO.replace("keep: 2", "keep: 0").replace("format: int8", "format: int3"))

    assert composed == [1]


def test_the_value_of_an_unknown_field_is_not_shown():
    assert "hunter2" not in refusal(Site, LOCAL + "pasword: hunter2\n")


def test_a_field_of_another_section_is_named_with_that_section():
    assert "did you mean object_store.region?" in refusal(Site, LOCAL + "region: eu-west-1\n")


def places(value, path=()):
    """Every place in a document."""
    yield path
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(child, (*path, key))


def replaced(document, path, value):
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = replaced(document[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize(("model", "text"), FILES)
def test_no_words_of_pydantic_reach_a_person(model, text):
    document = load_yaml(text)
    told = []

    for path in places(document):
        for value in ODD:
            try:
                parse_contract(model, dump_yaml(replaced(document, path, value)).encode(), "f.yaml")
            except InputError as error:
                told.append(str(error))

    assert len(told) > 100
    assert [text for text in told if WORDS_OF_PYDANTIC.search(text) or "is not valid" in text] == []


def patterns(schema):
    if isinstance(schema, dict):
        yield from (schema[key] for key in ("pattern",) if isinstance(schema.get(key), str))
        yield from schema.get("patternProperties", {})
        for value in schema.values():
            yield from patterns(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from patterns(value)


def test_every_pattern_that_has_words_is_one_of_a_spec_or_a_site():
    used = {pattern for model, _ in FILES for pattern in patterns(model.model_json_schema())}

    assert set(PATTERNS) <= used


@pytest.mark.parametrize("shown_of_token", range(4, 20))
def test_a_token_at_the_end_of_a_long_key_is_not_shown_in_part(shown_of_token):
    token = "hf_" + "a1B2" * 8
    place = ("labels", "k" * (PLACE_CHARS - shown_of_token) + token, "value")

    told = violation_text({"type": "missing", "loc": place, "input": {}}, Site)

    assert token[:6] not in told
    assert len(told) < 2 * PLACE_CHARS
