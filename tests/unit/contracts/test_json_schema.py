"""Which schemas are accepted, and what becomes of them. That the engine compiles them is seen in tests/local/serving."""

import json

import pytest

from tasks.contracts.wire.json_schema import MAX_CHARS, MAX_SCHEMAS, SchemaError, checked_schema

NODE = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}


def checked(schema):
    return json.loads(checked_schema(json.dumps(schema)))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "boolean"},
        {"enum": ["a", 1, None, True, 1.5]},
        {"const": "a", "type": "string"},
        {"type": ["string", "null"], "maxLength": 256},
        {"type": "integer", "minimum": -3, "maximum": 3},
        {"type": "number", "minimum": 0.5},
        {"type": "string", "format": "date"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
        {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
        {"type": "object", "properties": {"a b": {"type": "null"}}, "required": ["a b"], "additionalProperties": False},
        {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}},
        {"$ref": "#/definitions/A", "definitions": {"A": {"type": "null"}}},
    ],
)
def test_a_schema_that_can_be_enforced_stays_as_it_is(schema):
    assert checked(schema) == schema


@pytest.mark.parametrize("value", ["x", "1e300", "[[[1]]]", '{"a": {"b": null}}'])
@pytest.mark.parametrize("annotation", ["title", "default", "examples", "$id", "readOnly"])
def test_annotations_are_left_out_whatever_they_say(annotation, value):
    text = json.dumps(
        {"type": "object", "properties": {annotation: {"type": "null", annotation: "@"}}, annotation: "@"}
    )
    checked_text = checked_schema(text.replace('"@"', value if value != "x" else '"x"'))

    assert json.loads(checked_text) == {"type": "object", "properties": {annotation: {"type": "null"}}}


def test_a_definition_is_looked_at_once_however_often_it_is_referred_to():
    levels = 60
    choices = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**choices, f"a{levels}": {"type": "null"}}}

    assert checked(schema) == schema


def test_a_long_chain_of_definitions_that_closes_is_refused():
    schema = {"$ref": "#/$defs/a0", "$defs": {f"a{n}": {"$ref": f"#/$defs/a{(n + 1) % 200}"} for n in range(200)}}
    with pytest.raises(SchemaError, match="without end"):
        checked(schema)


def test_bounds_of_length_are_limited_all_together():
    texts = [{"type": "string", "minLength": number, "maxLength": 256} for number in range(80)]
    with pytest.raises(SchemaError, match="together"):
        checked({"anyOf": texts})


def test_what_json_schema_leaves_open_is_written_down():
    assert checked({"type": "array"}) == {"type": "array", "items": {}}
    assert checked({"type": "object"}) == {"type": "object", "additionalProperties": True}
    assert checked({"type": "object", "properties": {"a": True}}) == {"type": "object", "properties": {"a": True}}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({}, None),
        ({"type": "zebra"}, "zebra"),
        ({"type": []}, "type"),
        ({"type": 3}, "type"),
        ({"minItems": 1}, "type"),
        ({"type": "string", "pattern": "a"}, "pattern"),
        ({"type": "string", "minItems": 1}, "minItems"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"oneOf": [{"type": "null"}], "type": "null"}, "oneOf"),
        ({"anyOf": []}, "anyOf"),
        ({"anyOf": [{"type": "null"}], "type": "null"}, "type"),
        ({"enum": []}, "enum"),
        ({"enum": [["a"]]}, "value"),
        ({"enum": ["a"], "type": "integer"}, "value"),
        ({"const": True, "type": "integer"}, "value"),
        ({"const": "\ud800"}, "surrogate"),
        ({"type": "string", "format": "zebra"}, "zebra"),
        ({"type": "string", "format": "date", "maxLength": 3}, "format"),
        ({"type": "string", "maxLength": 257}, "256"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
        ({"type": "array", "minItems": -1}, "minItems"),
        ({"type": "array", "minItems": True}, "minItems"),
        ({"type": "array", "prefixItems": [True], "minItems": 2}, "prefixItems"),
        ({"type": "array", "items": []}, "items"),
        ({"type": "integer", "minimum": 1.5}, "minimum"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum"),
        ({"type": "integer", "maximum": 10**18}, "2^53"),
        ({"type": "object", "properties": {'a"b': {}}}, "names"),
        ({"type": "object", "properties": 3}, "properties"),
        ({"type": "object", "required": ["a"]}, "required"),
        ({"type": "object", "properties": {"a": False}}, "#/properties/a"),
        ({"$ref": "#/$defs/none"}, "none"),
        ({"$ref": "http://example.org/x"}, "$ref"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "without end"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}}, "without end"),
        ({"$ref": "#/$defs/a b", "$defs": {"a b": {}}}, "a b"),
        ({"type": "null", "$defs": 3}, "$defs"),
        ({"type": "null", "definitions": None}, "definitions"),
        ({"$ref": "#/definitions/A", "definitions": None}, "definitions"),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": 3}}}, "anyOf"),
        ({"$ref": "#/$defs/A", "$defs": {"A": 3}}, "#/$defs/A"),
        ({"enum": [2**53 + 1]}, "2^53"),
        ({"const": 10**400}, "2^64"),
        ({"type": "null", "title": "\ud800"}, "surrogate"),
        ({"type": "object", "properties": {"a": {"type": "null", "$defs": {}}}}, "$defs"),
        ({"anyOf": [{"type": "null"}] * MAX_SCHEMAS}, "too large"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_refused_with_its_place(schema, said):
    if said is None:
        assert checked(schema) == schema
        return
    with pytest.raises(SchemaError) as refused:
        checked(schema)

    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "true", '{"const": NaN}', "[" * 20_000, " " * (MAX_CHARS + 1)])
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(SchemaError):
        checked_schema(text)


def test_a_schema_that_is_too_deep_is_refused():
    schema = {"type": "null"}
    for _ in range(20):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaError, match="16 deep"):
        checked(schema)


def test_the_models_of_triton_share_the_file(request):
    link = request.config.rootpath / "model_repository_templates" / "shared" / "generation" / "json_schema.py"

    assert link.resolve() == request.config.rootpath / "tasks/contracts/wire/json_schema.py"
