"""Grammars of schemas, compiled by the xgrammar versions of the GPU images: what they allow obeys the schema.

SLIPWAY_GRAMMAR_EXAMPLES is the number of generated schemas for each version.
"""

import contextlib
import importlib.metadata
import json
import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from slipway.tasks.contracts.wire.grammar.ebnf import Dialect
from slipway.tasks.contracts.wire.json_schema import grammar_of
from tests.contracts.wheels.xgrammar_judge import VERSIONS, Judge
from tests.support.json_schemas import NOT_OF_ZOD, TABLE, ZOD, cases, changed, neighbours, validator
from tests.support.paths import REPOSITORY

ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
TOKENIZER = REPOSITORY / "tests" / "fixtures" / "hub" / "slipway" / "demo-llama" / "v1" / "tokenizer.json"
EXAMPLES = int(os.environ.get("SLIPWAY_GRAMMAR_EXAMPLES", "0"))
"""How many others to try; without it the same 40 each time, so that no change fails by what it did not change."""
SEEDS = range(4)
OF_TENSORRT_LLM = "0.1.25"


def packages(environment):
    return ENVIRONMENTS / environment / "lib" / "python3.11" / "site-packages"


@pytest.fixture(scope="module")
def judges():
    """Each version, with the dialect of the kinds whose images have it."""
    with contextlib.ExitStack() as stack:
        yield [
            (
                stack.enter_context(Judge(version, packages(f"xgrammar-{version}"), TOKENIZER)),
                Dialect.ALL_OR_NONE if version == OF_TENSORRT_LLM else Dialect.RANGES,
            )
            for version in VERSIONS
        ]


def obeys(schema, text):
    """Whether a text is JSON that obeys the schema."""
    try:
        return validator(schema).is_valid(json.loads(text))
    except ValueError:
        return False


@pytest.mark.parametrize("version", ["0.24.0", "0.27.1", "0.32.0"])
def test_the_oldest_and_newest_that_vllm_takes_are_among_the_judges(version):
    (wheel,) = importlib.metadata.distributions(path=[str(packages(f"vllm-{version}"))])
    (required,) = [each for each in map(Requirement, wheel.requires) if each.name == "xgrammar"]
    taken = [each for each in VERSIONS if Version(each) in required.specifier]

    assert taken[-1] == VERSIONS[-1]
    assert {str(Version(each.version)) for each in required.specifier if each.operator in {">=", "=="}} == {taken[0]}


def obeying_walks(judge, dialect, schema, seeds):
    """Texts of walks that ended, all of which obey the schema; a walk that cannot go on is an error."""
    _, walks = judge.judge(grammar_of(json.dumps(schema), dialect), seeds=seeds)
    # xgrammar 0.1.25 takes malformed UTF-8 in a text without bounds, which a runtime replaces
    errors = "replace" if dialect is Dialect.ALL_OR_NONE else "strict"
    ended = [walk.text.decode(errors=errors) for walk in walks if walk.end == "stop"]

    assert {walk.end for walk in walks} <= {"stop", "length"}, judge.version
    assert [text for text in ended if not obeys(schema, text)] == [], judge.version
    return ended


@pytest.mark.parametrize("schema", TABLE, ids=json.dumps)
def test_every_walk_that_ends_obeys_its_schema(judges, schema):
    for judge, dialect in judges:
        assert obeying_walks(judge, dialect, schema, SEEDS)


@pytest.mark.parametrize("name", sorted({*ZOD} - {*NOT_OF_ZOD}))
def test_every_walk_that_ends_obeys_the_schema_of_a_type_of_zod(judges, name):
    for judge, dialect in judges:
        obeying_walks(judge, dialect, ZOD[name], range(2))


@settings(
    max_examples=EXAMPLES or 40,
    derandomize=not EXAMPLES,
    deadline=None,
    phases=[Phase.generate],  # a smaller example takes minutes to find
    suppress_health_check=[HealthCheck.too_slow],
)
@given(cases(), st.data())
def test_what_is_allowed_obeys_the_schema_and_what_obeys_it_is_allowed(judges, case, data):
    values = data.draw(st.lists(case.values.filter(validator(case.schema).is_valid), min_size=1, max_size=3))
    valid = [json.dumps(value, ensure_ascii=False) for value in values]
    near = [data.draw(neighbours(text)) for text in valid for _ in range(3)]
    near += [json.dumps(data.draw(changed(value))) for value in values for _ in range(3)]
    for judge, dialect in judges:
        allowed, walks = judge.judge(
            grammar_of(json.dumps(case.schema), dialect), [text.encode() for text in (*valid, *near)], range(2)
        )
        refused = [text for text, taken in zip(valid, allowed, strict=False) if not taken]
        drawn = [text for text, taken in zip(near, allowed[len(valid) :], strict=True) if taken]
        drawn += [walk.text.decode(errors="replace") for walk in walks if walk.end == "stop"]

        assert {walk.end for walk in walks} <= {"stop", "length"}
        assert [text for text in drawn if not obeys(case.schema, text)] == [], judge.version
        # bounded texts are ASCII there, with escapes
        assert [text for text in refused if text.isascii() or dialect is Dialect.RANGES] == [], judge.version
