"""What a number or a text within bounds may be, drawn at random from the language that is written for it.

That runtimes read the written grammar so is seen in tests/local/serving/models/test_grammars_of_schemas.py.
"""

import ipaddress
import json
import random
import re
from decimal import Decimal

import pydantic
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from slipway.tasks.contracts.wire.grammar import GrammarError
from slipway.tasks.contracts.wire.grammar.automaton import common
from slipway.tasks.contracts.wire.grammar.formats import PATTERNS, format_language
from slipway.tasks.contracts.wire.grammar.numbers import number_language
from slipway.tasks.contracts.wire.grammar.patterns import read_pattern
from slipway.tasks.contracts.wire.grammar.regular import Chain, Chars, Choice, Repeat, Shared
from slipway.tasks.contracts.wire.json_schema.keywords import number_bounds

CHECKER = Draft202012Validator.FORMAT_CHECKER
MORE = 3
"""Repetitions that are drawn where nothing limits them."""
FINITE = {"allow_nan": False, "allow_infinity": False}
WHOLE = st.integers(-(10**14), 10**14) | st.integers(-200, 200)
REAL = WHOLE | st.floats(-1e9, 1e9, **FINITE) | st.decimals(-10, 10, places=3).map(float)


def drawn(regex, chance):
    """One text of a language."""
    match regex:
        case Chars(ranges):
            low, high = chance.choice(ranges)
            return chr(chance.randint(low, high))
        case Chain(parts):
            return "".join(drawn(part, chance) for part in parts)
        case Choice(options):
            return drawn(chance.choice(options), chance)
        case Repeat(part, least, most):
            times = chance.randint(least, least + MORE if most is None else most)
            return "".join(drawn(part, chance) for _ in range(times))
        case Shared(part):
            return drawn(part, chance)


def written(regex):
    """The language as a pattern of package re, which judges whether a text is in it."""
    match regex:
        case Chars(ranges):
            return "[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges) + "]"
        case Chain(parts):
            return "".join(map(written, parts))
        case Choice(options):
            return "(?:" + "|".join(map(written, options)) + ")"
        case Repeat(part, least, most):
            return f"(?:{written(part)}){{{least},{'' if most is None else most}}}"
        case Shared(part):
            return written(part)


@st.composite
def bounded(draw):
    """A schema of a number, with bounds of all kinds."""
    whole = draw(st.booleans())
    schema = {"type": "integer" if whole else "number"}
    for name in draw(st.sets(st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]))):
        schema[name] = draw(REAL)
    if draw(st.integers(0, 3)) == 0:
        schema["multipleOf"] = draw(
            st.sampled_from([1, 2, 3, 5, 7, 10, 25, 60]) if whole else st.sampled_from([0.5, 3, 0.125])
        )
    return schema


@settings(max_examples=60, deadline=None)
@given(bounded(), st.randoms(use_true_random=False))
def test_every_number_of_the_language_obeys_its_bounds(schema, chance):
    whole = schema["type"] == "integer"
    try:
        language = number_language(number_bounds(schema, "#", whole=whole))
    except GrammarError:
        assume(False)
    for _ in range(24):
        text = drawn(language, chance)
        assert Draft202012Validator(schema).is_valid(json.loads(text)), text


@settings(max_examples=60, deadline=None)
@given(bounded(), st.integers(-(10**6), 10**6), st.sampled_from([1, 2, 4, 10, 100]))
def test_a_number_within_bounds_is_in_the_language(schema, number, divisor):
    assume("multipleOf" not in schema)
    whole = schema["type"] == "integer"
    value = number if whole else number / divisor
    valid = Draft202012Validator(schema).is_valid(value)
    try:
        language = number_language(number_bounds(schema, "#", whole=whole))
    except GrammarError:
        assert not valid
        return
    text = str(int(value)) if value == int(value) else repr(value)

    assert (re.fullmatch(written(language), text) is not None) == valid


PRICE = {"type": "number", "multipleOf": 0.01, "minimum": 0}
CENTS = {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 9}


@pytest.mark.parametrize(
    "schema",
    [
        PRICE,
        {"type": "number", "multipleOf": 0.05, "minimum": -2, "maximum": 1e6},
        {"type": "number", "multipleOf": 0.3, "exclusiveMinimum": 0, "maximum": 30},
        {"type": "integer", "multipleOf": 0.1},
    ],
    ids=str,
)
def test_a_multiple_of_a_decimal_is_one_by_division_of_doubles(schema):
    chance = random.Random(7)  # noqa: S311 - texts of a test
    language = number_language(number_bounds(schema, "#", whole=schema["type"] == "integer"))
    for text in (drawn(language, chance) for _ in range(100)):
        assert Draft202012Validator(schema).is_valid(json.loads(text)), text


def test_every_price_that_is_one_by_division_of_doubles_can_be_written():
    prices = [number / 100 for number in range(901)]
    language = re.compile(written(number_language(number_bounds(CENTS, "#", whole=False))))

    valid = [price for price in prices if Draft202012Validator(CENTS).is_valid(price)]
    assert [price for price in prices if language.fullmatch(f"{price:g}")] == valid


def test_each_format_of_json_schema_has_a_checker():
    """Without its package a checker says yes to everything. The others are libraries' own, and nobody else checks them."""
    of_zod = {"base64", "base64url", "cidrv4", "cidrv6", "e164", "cuid", "cuid2", "ulid", "xid", "ksuid", "nanoid"}

    assert set(PATTERNS) - set(CHECKER.checkers) == of_zod | set(OF_PYTHON)


OF_PYTHON = {
    **{f"uuid{number}": getattr(pydantic, f"UUID{number}") for number in (1, 3, 4, 5, 6, 7, 8)},
    "ipvanyaddress": pydantic.IPvAnyAddress,
    "ipvanynetwork": pydantic.IPvAnyNetwork,
    "ipvanyinterface": pydantic.IPvAnyInterface,
    "ipv4network": ipaddress.IPv4Network,
    "ipv6network": ipaddress.IPv6Network,
    "ipv4interface": ipaddress.IPv4Interface,
    "ipv6interface": ipaddress.IPv6Interface,
    "decimal": Decimal,
}
"""Formats that pydantic or msgspec write, and the types that they write them for."""


@pytest.mark.parametrize(("name", "kind"), OF_PYTHON.items())
def test_pydantic_reads_every_text_of_its_own_formats(name, kind):
    chance = random.Random(name)  # noqa: S311 - texts of a test
    for text in (drawn(format_language(name), chance) for _ in range(50)):
        assert pydantic.TypeAdapter(kind).validate_json(json.dumps(text)) is not None, text


FASTER = {"iri": "uri", "iri-reference": "uri-reference"}
"""By the grammar of RFC 3987 every URI is an IRI. The checker of IRIs needs 65 ms for a text, that of URIs 0.1."""
READ_SLOWLY = 20


@pytest.mark.parametrize("name", PATTERNS)
def test_every_text_of_a_format_is_one(name):
    chance = random.Random(name)  # noqa: S311 - texts of a test
    language = format_language(name)
    automaton = common([language])
    for number in range(200):
        text = drawn(language, chance)
        CHECKER.check(text, name if number < READ_SLOWLY else FASTER.get(name, name))
        assert automaton.matches(text)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("^a+$", ["", "a", "aa", "ab", "ba"]),
        ("b", ["", "b", "ab", "ba", "a"]),
        ("^a|b$", ["a", "b", "ac", "cb", "c", "bc"]),
        (r"^(?!ab)[a-c]{2}$", ["ab", "ac", "ba", "a"]),
        (r"^(?!.*\.\.)[a.]+$", ["a.a", "a..a", ".", ".."]),
        (r"^(a(?=b))?[ab]+$", ["ab", "aa", "b"]),
        (r"^[^\d\s]\x41\u00e9\.$", ["xAé.", "1Aé.", "xAéx"]),
        (r"^(?:\d{2}|[x-z]{1,}?)*$", ["", "12", "1", "x12z", "123"]),
    ],
)
def test_a_pattern_is_read_as_package_re_reads_it(pattern, texts):
    automaton = common([read_pattern(pattern)])

    assert [automaton.matches(text) for text in texts] == [re.search(pattern, text) is not None for text in texts]
