"""A schema in the words that are read further on: what can be said in others is said in those."""

from collections.abc import Mapping
from typing import Any

from .keywords import words_of

VALUES = frozenset({"const", "enum", "default", "examples", "example"})
"""Keywords that hold values, in which nothing is a schema."""
NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords that hold schemas by name, whatever the names are."""
DEPENDENCIES = ("dependentRequired", "dependentSchemas", "dependencies")
"""What a property asks for, by its name; the last one is of drafts before 2019-09 and holds either kind."""
BESIDE_ITEMS = frozenset(
    {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "contains", "additionalItems", *DEPENDENCIES}
)
OF_NAMES = frozenset({"properties", "additionalProperties", "propertyNames", "unevaluatedProperties"})


def plain_form(schema: Any) -> Any:
    """The schema, and all schemas within it, in plain form.

    A `$ref` beside other keywords becomes one of `allOf`: drafts before 2019-09 ignore what is beside it, and a value
    that obeys both obeys either reading.
    """
    if isinstance(schema, list):
        return [plain_form(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {}
    for name, each in schema.items():
        if name in NAMED and isinstance(each, dict):
            plain[name] = {key: plain_form(inner) for key, inner in each.items()}
        else:
            plain[name] = each if name in VALUES else plain_form(each)
    return _with_named_properties(_with_items(_with_dependencies(_with_reference_apart(plain))))


def _with_reference_apart(schema: dict[str, Any]) -> dict[str, Any]:
    others = schema.get("allOf", [])
    if not isinstance(schema.get("$ref"), str) or set(words_of(schema, "")) == {"$ref"} or not isinstance(others, list):
        return schema
    return {
        **{name: each for name, each in schema.items() if name != "$ref"},
        "allOf": [*others, {"$ref": schema["$ref"]}],
    }


def _with_dependencies(schema: dict[str, Any]) -> dict[str, Any]:
    """What a property asks for, as a choice: without the property, or with what it asks for."""
    named = [schema[word] for word in DEPENDENCIES if word in schema]
    others = schema.get("allOf", [])
    if not named or not all(isinstance(each, Mapping) for each in named) or not isinstance(others, list):
        return schema
    rest = {name: each for name, each in schema.items() if name not in DEPENDENCIES}
    choices = [_choice(name, asked) for each in named for name, asked in each.items()]
    return {**rest, "allOf": [*others, *choices]} if choices else rest


def _choice(name: str, asked: Any) -> dict[str, Any]:
    whole = {"required": asked} if isinstance(asked, list) else asked
    return {"anyOf": [{"properties": {name: False}}, {"allOf": [{"required": [name]}, whole]}]}


def _with_items(schema: dict[str, Any]) -> dict[str, Any]:
    """Items that nothing else in the same schema describes, where no schema beside could describe some of them."""
    if "unevaluatedItems" not in schema or BESIDE_ITEMS & {*schema}:
        return schema
    rest = {name: each for name, each in schema.items() if name != "unevaluatedItems"}
    others = "additionalItems" if isinstance(rest.get("items"), list) else "items"
    return {others: schema["unevaluatedItems"], **rest}


def _with_named_properties(schema: dict[str, Any]) -> dict[str, Any]:
    """Properties of one pattern alone: all others are left out, which they may be."""
    patterns = schema.get("patternProperties")
    if not isinstance(patterns, Mapping) or len(patterns) != 1 or OF_NAMES & {*schema} - {"additionalProperties"}:
        return schema
    ((pattern, value),) = patterns.items()
    rest = {name: each for name, each in schema.items() if name != "patternProperties"}
    return {**rest, "propertyNames": {"pattern": pattern}, "additionalProperties": value}
