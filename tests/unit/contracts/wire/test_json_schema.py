"""Which schemas are accepted, and which are refused. That answers obey them is seen in tests/local/serving."""

import json
import re
from contextlib import suppress

import pytest
from jsonschema import Draft202012Validator

from slipway.tasks.contracts.wire.grammar.ebnf import Dialect
from slipway.tasks.contracts.wire.grammar.formats import ANY_TEXT, NUMBERS, PATTERNS
from slipway.tasks.contracts.wire.json_schema import SchemaError, compact_schema, grammar_of
from slipway.tasks.contracts.wire.json_schema.counting import values_of
from slipway.tasks.contracts.wire.json_schema.document import Document
from slipway.tasks.contracts.wire.json_schema.keywords import BY_TYPE, WHOLE
from slipway.tasks.contracts.wire.json_schema.limits import MAX_CHARS, MAX_SCHEMAS
from slipway.tasks.contracts.wire.json_schema.values import fitting_values
from tests.support.json_schemas import TABLE

NULL = {"type": "null"}
NODE = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"enum": ["dog", "wolf"]}}, "required": ["kind"]}
FORMATS = ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")


def grammar(schema, dialect=Dialect.RANGES):
    return grammar_of(json.dumps(schema), dialect)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "boolean"},
        {"enum": ["a", 1, None, True, 1.5, {"a": [1]}]},
        {"const": "a", "type": "string"},
        {"enum": ["a", "é", "\x01"]},
        {"type": ["string", "null"], "maxLength": 256},
        {"type": "string", "maxLength": 200},
        {"type": "integer", "minimum": -3, "exclusiveMaximum": 3.5},
        {"type": "integer", "format": "int32"},
        {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5},
        {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1},
        *({"type": "string", "format": name} for name in FORMATS),
        {"type": "string", "format": "password"},
        {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "b$"}]},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3, "uniqueItems": False},
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "minItems": 2, "maxItems": 2},
        {"type": "array", "items": [{"type": "integer"}], "additionalItems": False},
        {"type": "object", "properties": {"größe": {"type": "null"}}, "required": ["größe"]},
        {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "boolean"}},
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": True, "required": ["a"]},
        {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}},
        {"$ref": "#/definitions/A", "definitions": {"A": {"type": "null"}}},
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"oneOf": [CAT, {"$ref": "#/$defs/Dog"}], "$defs": {"Dog": DOG}, "discriminator": {"propertyName": "kind"}},
        {"properties": {"a": {"type": "null"}}},
        {
            "properties": {"a": NULL, "b": NULL},
            "dependencies": {"a": ["b"], "b": {"$ref": "#/$defs/C"}},
            "$defs": {"C": CAT},
        },
        {"type": "object", "properties": {"a": NULL}, "dependentRequired": {}},
        {"type": "array", "items": [NULL], "unevaluatedItems": False},
    ],
)
@pytest.mark.parametrize("dialect", Dialect)
def test_a_schema_that_can_be_enforced_becomes_a_grammar(schema, dialect):
    assert grammar(schema, dialect).startswith("root ::= ")
    assert json.loads(compact_schema(schema)) == schema


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        ({"type": "string", "maxLength": 3}, {"type": ["string", "null"], "maxLength": 3}),
        ({"type": ["integer", "null"]}, {"type": ["integer", "null"]}),
        ({"type": "string", "enum": ["a", None]}, {"enum": ["a", None]}),
        ({"type": "string", "enum": ["a"]}, {"enum": ["a"]}),
    ],
)
def test_openapis_nullable_adds_null_to_the_type(schema, plain):
    assert grammar({**schema, "nullable": True}) == grammar(plain)


@pytest.mark.parametrize("value", ['"x"', "1e300", "[[[1]]]", '{"a": {"b": null}}'])
@pytest.mark.parametrize("annotation", ["title", "default", "examples", "$id", "readOnly", "x-order"])
def test_annotations_change_nothing_whatever_they_say(annotation, value):
    plain = {"type": "object", "properties": {annotation: {"type": "null"}}}
    text = json.dumps(
        {"type": "object", "properties": {annotation: {"type": "null", annotation: "@"}}, annotation: "@"}
    )

    assert grammar_of(text.replace('"@"', value)) == grammar(plain)


@pytest.mark.parametrize("step", [0.7, 0.1, 2.5, 3])
def test_whole_numbers_that_are_counted_are_those_that_obey_their_schema(step):
    items = {"type": "integer", "minimum": 0, "exclusiveMaximum": 200, "multipleOf": step}

    valid = [number for number in range(201) if Draft202012Validator(items).is_valid(number)]
    assert values_of(items, Document(items), "#") == valid


@pytest.mark.parametrize("data", [{"$id": "Node", "type": "boolean"}, [{"$anchor": "n"}], {"$ref": "#"}])
@pytest.mark.parametrize("keyword", ["examples", "default"])
@pytest.mark.parametrize("reference", ["Node", "#n", "Inner", "Inner#m"])
def test_a_reference_by_name_never_leads_into_data(reference, keyword, data):
    inner = {"$id": "Inner", "type": "integer", "$anchor": "m"}
    schema = {
        "properties": {"a": {"$ref": reference}},
        "required": ["a"],
        "$defs": {"N": {"$id": "Node", "type": "integer"}, "n": {"$anchor": "n", "type": "integer"}, "i": inner},
    }
    validator = Draft202012Validator(schema)

    assert [validator.is_valid({"a": value}) for value in (1, True, "x")] == [True, False, False]
    assert grammar({**schema, keyword: data}) == grammar(schema) == grammar({**schema, "$id": "Root"})


def test_listed_numbers_are_multiples_whatever_their_size():
    numbers = [1e30, 2e300, 5, 0.07, 0.29, 1e-300]
    schema = {"enum": numbers, "multipleOf": 0.01}

    assert fitting_values(schema, "#") == [each for each in numbers if Draft202012Validator(schema).is_valid(each)]


def test_a_walk_is_made_for_every_keyword_and_format():
    text = json.dumps(TABLE)
    keywords = set(WHOLE).union(*BY_TYPE.values()) - {"additionalItems"}

    assert [word for word in (*keywords, *PATTERNS) if f'"{word}"' not in text] == []


def test_a_definition_is_written_once_however_often_it_is_referred_to():
    levels = 60
    choices = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**choices, f"a{levels}": {"type": "null"}}}

    assert len(grammar(schema)) < 2000


def test_a_long_chain_of_definitions_that_closes_is_refused():
    schema = {"$ref": "#/$defs/a0", "$defs": {f"a{n}": {"$ref": f"#/$defs/a{(n + 1) % 200}"} for n in range(200)}}
    with pytest.raises(SchemaError, match="without end"):
        grammar(schema)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_definitions_that_double_at_each_level_are_read_in_bounded_steps(keyword):
    levels = {f"a{n}": {keyword: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**levels, "a60": {"type": "null"}}}
    with suppress(SchemaError):
        grammar(schema)


def test_a_grammar_is_bounded_as_a_whole():
    texts = [{"type": "string", "minLength": number, "maxLength": 256} for number in range(80)]
    with pytest.raises(SchemaError, match="more than"):
        grammar({"anyOf": texts})


@pytest.mark.parametrize("digits", [1, 9, 15])
def test_bounds_of_many_digits_make_small_grammars(digits):
    low, high = -float("9" * digits) / 7, float("9" * digits) / 3

    assert len(grammar({"type": "number", "minimum": low, "maximum": high})) < 12_000


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "zebra"}, "zebra"),
        ({"type": []}, "type"),
        ({"type": 3}, "type"),
        ({"type": "string", "pattern": r"\bword"}, "pattern"),
        ({"type": "string", "pattern": r"(a)\1"}, "pattern"),
        ({"type": "string", "pattern": "("}, "pattern"),
        ({"type": "string", "pattern": "^a$", "minLength": 2}, "no text fits"),
        ({"type": "string", "format": "time", "pattern": r"^\d\d:\d\d$"}, "no text fits"),
        ({"type": "string", "minItems": 1}, "minItems"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "uniqueItems": True, "items": {"enum": ["a"]}, "minItems": 2}, "different values"),
        ({"type": "array", "uniqueItems": True, "items": {"enum": [*range(257)]}}, "uniqueItems"),
        ({"type": "array", "uniqueItems": True, "items": {"type": "integer", "minimum": 0}}, "uniqueItems"),
        ({"type": "string", "format": "regex", "pattern": "a"}, "regex"),
        ({"$ref": "#there"}, "#there"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
        ({"oneOf": [{"const": 1}, {"enum": [1.0, 2]}]}, "oneOf"),
        ({"oneOf": [{"type": "string"}, {"properties": {"a": True}, "required": ["a"]}]}, "oneOf"),
        ({"oneOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]}, "oneOf"),
        ({"oneOf": [CAT, CAT]}, "oneOf"),
        ({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "oneOf"),
        ({"type": "string", "oneOf": [{"type": "null"}, False]}, "no option"),
        ({"allOf": [CAT, DOG]}, "#/properties/kind"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "types"),
        ({"allOf": [{"type": "integer", "multipleOf": 2}, {"multipleOf": 3}]}, "multipleOf twice"),
        ({"allOf": [{"type": "string", "format": "date"}, {"format": "time"}]}, "format twice"),
        ({"allOf": [{"anyOf": [CAT, DOG]}, {"type": "array"}]}, "anyOf has no option"),
        ({"allOf": [{"anyOf": 3}, {"type": "array"}]}, "anyOf"),
        ({"allOf": [{"properties": {"a": True}, "unevaluatedProperties": False}, CAT]}, "unevaluatedProperties"),
        ({"allOf": [{"prefixItems": [True]}, {"items": {"type": "null"}}]}, "prefixItems"),
        ({"allOf": [CAT, {"unevaluatedProperties": False}]}, "unevaluatedProperties"),
        ({"allOf": [{"minimum": "1"}, {"minimum": 1}], "type": "integer"}, "minimum"),
        ({"allOf": [{"required": 3}, {"required": ["a"]}]}, "required"),
        ({"allOf": [{"properties": 3}, CAT]}, "properties"),
        (
            {"allOf": [{"$ref": "#/$defs/A"}, CAT], "$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}, DOG]}}},
            "without end",
        ),
        ({"not": {"type": "null"}}, "not"),
        ({"if": {"type": "null"}, "then": False}, "if"),
        ({"type": "array", "contains": {"type": "null"}}, "contains"),
        ({"type": "array", "allOf": [{"prefixItems": [True]}], "unevaluatedItems": False}, "unevaluatedItems"),
        ({"type": "object", "dependentRequired": ["a"]}, "dependentRequired"),
        ({"type": "object", "dependentSchemas": {"a": 3}}, "#/dependentSchemas/a is '3'"),
        ({"type": "object", "patternProperties": {"a": True, "b": True}}, "patternProperties"),
        ({"enum": ["a"], "minLength": 2}, "no value"),
        ({"enum": [[1]], "minItems": 1}, "minItems"),
        ({"nullable": True}, "nullable"),
        ({"anyOf": []}, "anyOf"),
        ({"anyOf": [{"type": "null"}], "type": "string"}, "anyOf"),
        ({"enum": []}, "enum"),
        ({"enum": ["a"], "type": "integer"}, "value"),
        ({"const": True, "type": "integer"}, "value"),
        ({"const": "\ud800"}, "surrogate"),
        ({"type": "string", "format": "zebra"}, "zebra"),
        ({"type": "string", "maxLength": 257}, "256"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
        ({"type": "array", "minItems": -1}, "minItems"),
        ({"type": "array", "minItems": True}, "minItems"),
        ({"type": "array", "prefixItems": 3}, "prefixItems"),
        ({"type": "array", "prefixItems": [True], "minItems": 2, "items": False}, "minItems"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "no such number"),
        ({"type": "integer", "exclusiveMinimum": 3, "maximum": 3}, "no such number"),
        ({"type": "integer", "minimum": 10**15}, "no such number"),
        ({"type": "integer", "exclusiveMinimum": True}, "exclusiveMinimum"),
        ({"type": "number", "multipleOf": 0.7}, "multipleOf"),
        ({"type": "number", "multipleOf": 0.7, "minimum": 0, "maximum": 1e6}, "at most 100000"),
        ({"type": "number", "multipleOf": 0.1, "minimum": 0.29, "maximum": 0.31}, "no such number"),
        ({"type": "number", "multipleOf": 1e-8, "minimum": 0}, "multipleOf is 1E-8: validators disagree"),
        (
            {"type": "number", "multipleOf": 12345.67, "minimum": 0, "maximum": 1e9},
            "multipleOf is 12345.67: it has too",
        ),
        ({"type": "number", "multipleOf": 0.0123457, "minimum": 0, "maximum": 999}, "0.0123457: it has too"),
        ({"type": "number", "multipleOf": 1e-16, "minimum": 0, "maximum": 1e-15}, "16 digits behind the point"),
        ({"type": "number", "multipleOf": 0.15}, "multipleOf is 0.15"),
        ({"type": "integer", "multipleOf": 0}, "multipleOf is 0; expected a number above 0"),
        ({"enum": [5], "multipleOf": 0}, "multipleOf is 0"),
        ({"enum": [5], "multipleOf": -1}, "multipleOf is -1"),
        ({"type": "string", "format": ["date"]}, "#/format is \"['date']\"; expected a text"),
        ({"type": "number", "format": {}}, "#/format is '{}'"),
        ({"type": "integer", "multipleOf": 98765}, "multipleOf"),
        ({"type": "object", "properties": 3}, "properties"),
        ({"type": "object", "required": 3}, "required"),
        ({"type": "object", "properties": {"a": True}, "required": ["b"]}, "'b'"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "#/properties/a"),
        ({"allOf": None}, "allOf is not a list"),
        ({"$ref": "#/$defs/none"}, "none"),
        ({"$ref": "N", "$defs": {"A": {"$id": "N", "type": "null"}, "B": {"$id": "N"}}}, "'N' names two schemas"),
        ({"$ref": "#n", "$defs": {"A": {"$anchor": "n", "type": "null"}, "B": {"$anchor": "n"}}}, "'#n' names two"),
        ({"properties": {"a": {"$id": "N", "anyOf": [{"$ref": "#"}, NULL]}}}, "#/properties/a/anyOf/0 has $ref '#'"),
        ({"properties": {"a": {"$id": "N", "items": {"$ref": "#/x"}}}}, "'#/x', which is relative to the $id 'N'"),
        ({"properties": {"a": {"$id": "urn:a:n", "items": {"$ref": "#x"}}}}, "'#x', which is relative"),
        ({"properties": {"a": {"$id": "b/", "items": {"$ref": "N"}}}, "$defs": {"N": {"$id": "N"}}}, "'N', which is"),
        ({"properties": {"a": {"$id": "http://[", "$anchor": "n"}}}, "no URI reference"),
        ({"$ref": "#n", "$defs": {"A": {"$id": "N", "$defs": {"B": {"$anchor": "n"}}}}}, "'#n'"),
        ({"$ref": "http://example.org/x"}, "$ref"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "without end"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}}, "without end"),
        ({"$ref": "#/definitions/A", "definitions": None}, "definitions"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": 3}}}, "anyOf"),
        ({"$ref": "#/$defs/A", "$defs": {"A": 3}}, "#/$defs/A"),
        ({"const": 10**400}, "2^64"),
        ({"type": "null", "title": "\ud800"}, "surrogate"),
        ({"anyOf": [{"type": "null"}] * MAX_SCHEMAS}, "too large"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused_with_its_place(schema, said):
    with pytest.raises(SchemaError) as refused:
        grammar(schema)

    assert said in str(refused.value)


AB = {"type": "object", "properties": {"a": NULL, "b": NULL}}
TEN = {"type": "object", "properties": {f"p{number}": NULL for number in range(10)}}
FIVE = {f"p{number}": [f"p{number + 5}"] for number in range(5)}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            {**AB, "dependentRequired": {"a": ["b", 3]}},
            "#/dependentRequired/a is \"['b', 3]\"; expected a list of names",
        ),
        ({**AB, "dependencies": {"a/b": None}}, "#/dependencies/a~1b is 'None'"),
        ({**AB, "dependentRequired": {"a": ["c"]}}, "# requires 'c', which its properties do not have"),
        ({**AB, "required": ["a"], "dependentSchemas": {"a": False}}, "#/properties/a is required"),
        ({**AB, "required": ["a"], "dependentSchemas": {"a": {"type": "array"}}}, "#/dependentSchemas/a has no option"),
        ({**AB, "dependentSchemas": {"a": {"allOf": 3}}}, "#/dependentSchemas/a/allOf is not a list"),
        ({**AB, "dependentSchemas": {"b": {"properties": {"a": {"type": "string"}}}}}, "#/properties/a: allOf has the"),
        ({**TEN, "dependentRequired": FIVE}, "# has 5 entries of dependentRequired or its like"),
        ({"items": {**TEN, "dependentRequired": FIVE}, "type": "array"}, "#/items has 5 entries of dependentRequired"),
    ],
)
def test_a_dependency_is_refused_by_places_of_the_schema_that_was_sent(schema, said):
    with pytest.raises(SchemaError) as refused:
        grammar(schema)

    assert said in str(refused.value)
    for place in re.findall(r"#[^ :,]*", str(refused.value)):
        found = schema
        for part in place.split("/")[1:]:
            found = found[part.replace("~1", "/")]


def test_a_property_that_allows_nothing_beside_it_is_not_there():
    plain = grammar({"type": "object", "properties": {"a": False, "b": NULL}})

    assert grammar({**AB, "dependentSchemas": {"a": False}}) == grammar({**AB, "dependencies": {"a": False}}) == plain


ITSELF = {"$ref": "#/$defs/A"}
"""A place; NULL may stand there instead."""
REQUIRES = {
    "a property": lambda each: {"type": "object", "properties": {"a": each}, "required": ["a"]},
    "one of other properties": lambda each: {"type": "object", "additionalProperties": each, "required": ["a"]},
    "an item": lambda each: {"type": "array", "items": each, "minItems": 1},
    "a first item": lambda each: {"type": "array", "prefixItems": [NULL, each]},
    "an item of an option": lambda each: {"anyOf": [{"type": "array", "items": each, "minItems": 2}]},
    "a property of a property": lambda each: REQUIRES["a property"](REQUIRES["a property"](each)),
    "a property of another place": lambda each: REQUIRES["a property"]({"anyOf": [{"$ref": "#/$defs/B"}, each]}),
}
PLACES = {"B": {"type": "object", "properties": {"b": ITSELF}, "required": ["b"]}}


@pytest.mark.parametrize("requires", REQUIRES.values(), ids=REQUIRES)
@pytest.mark.parametrize(
    "root", [ITSELF, {"type": "object", "properties": {"x": ITSELF}}, {"anyOf": [NULL, ITSELF]}], ids=repr
)
def test_a_place_that_requires_itself_is_refused_by_name_and_taken_with_a_way_out(requires, root):
    with pytest.raises(SchemaError, match=r"^#/\$defs/[AB] requires itself"):
        grammar({**root, "$defs": {"A": requires(ITSELF), **PLACES}})

    assert grammar({**root, "$defs": {"A": requires({"anyOf": [ITSELF, NULL]}), **PLACES}})


def test_a_property_that_need_not_be_there_is_a_way_out():
    assert grammar({**ITSELF, "$defs": {"A": {"type": "object", "properties": {"a": ITSELF}}}})


@pytest.mark.parametrize("text", ["", "{", "[]", "true", '{"const": NaN}', "[" * 20_000, " " * (MAX_CHARS + 1)])
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(SchemaError):
        grammar_of(text)


def test_a_schema_that_is_too_deep_is_refused():
    schema = {"type": "null"}
    for _ in range(20):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaError, match="16 deep"):
        grammar(schema)


def test_the_documentation_names_what_is_enforced(request):
    page = " ".join((request.config.rootpath / "docs" / "openai.md").read_text().split())
    alike = {}
    for kind, names in BY_TYPE.items():
        alike.setdefault(", ".join(f"`{name}`" for name in sorted(names)), []).append(f"`{kind}`")
    items = [f"- {' and '.join(kinds)}: {names}." for names, kinds in alike.items() if names]
    formats = {"a `string`": PATTERNS, "a number": NUMBERS}
    items += [f"- formats of {kind}: {', '.join(sorted(names))}." for kind, names in formats.items()]
    items += [f"- formats that ask for nothing: {', '.join(sorted(ANY_TEXT))}."]
    items += [f"- any value: {', '.join(f'`{name}`' for name in WHOLE)}."]

    assert [item for item in items if item not in page] == []
