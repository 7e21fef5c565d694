"""A schema in the words that are read further on: what can be said in others is said in those."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .keywords import token, words_of
from .limits import SchemaError

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


class Dependency(list[Any]):
    """The schemas of a keyword that is written for an entry of `dependentRequired` or its like, which is at `place`."""

    def __init__(self, options: Iterable[Any], place: str) -> None:
        super().__init__(options)
        self.place = place


def place_of(schemas: Sequence[Any], at: str, *path: str | int) -> str:
    """The place of a keyword's schemas, or of one of them, in what the client sent."""
    return schemas.place if isinstance(schemas, Dependency) else "/".join([at, *map(str, path)])


def plain_form(schema: Any, at: str) -> Any:
    """The schema at a place, and all schemas within it, in plain form.

    A `$ref` beside other keywords becomes one of `allOf`: drafts before 2019-09 ignore what is beside it, and a value
    that obeys both obeys either reading.

    Raises:
        SchemaError: a property asks for what is neither a list of names nor a schema.
    """
    if isinstance(schema, list):
        return [plain_form(each, f"{at}/{number}") for number, each in enumerate(schema)]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {}
    for name, each in schema.items():
        place = f"{at}/{token(name)}"
        if name in NAMED and isinstance(each, dict):
            plain[name] = {key: plain_form(inner, f"{place}/{token(key)}") for key, inner in each.items()}
        else:
            plain[name] = each if name in VALUES else plain_form(each, place)
    return _with_named_properties(_with_items(_with_dependencies(_with_reference_apart(plain), at)))


def _with_reference_apart(schema: dict[str, Any]) -> dict[str, Any]:
    others = schema.get("allOf", [])
    if not isinstance(schema.get("$ref"), str) or set(words_of(schema, "")) == {"$ref"} or not isinstance(others, list):
        return schema
    return {
        **{name: each for name, each in schema.items() if name != "$ref"},
        "allOf": [*others, {"$ref": schema["$ref"]}],
    }


def _with_dependencies(schema: dict[str, Any], at: str) -> dict[str, Any]:
    """What a property asks for, as a choice: without the property, or with what it asks for."""
    named = {word: schema[word] for word in DEPENDENCIES if word in schema}
    others = schema.get("allOf", [])
    if not named or not all(isinstance(each, Mapping) for each in named.values()) or not isinstance(others, list):
        return schema
    rest = {name: each for name, each in schema.items() if name not in DEPENDENCIES}
    choices = [
        _choice(name, asked, f"{at}/{word}/{token(name)}")
        for word, each in named.items()
        for name, asked in each.items()
    ]
    return {**rest, "allOf": [*others, *choices]} if choices else rest


def _choice(name: str, asked: Any, place: str) -> dict[str, Any]:
    without = {"properties": {name: False}}
    if asked is False:
        return without
    if isinstance(asked, list) and all(isinstance(each, str) for each in asked):
        beside: dict[str, Any] = {"required": [*dict.fromkeys([name, *asked])]}
    elif asked is True or isinstance(asked, dict):
        beside = {"allOf": Dependency([{"required": [name]}, asked], place)}
    else:
        raise SchemaError(f"{place[:128]} is {str(asked)[:64]!r}; expected a list of names, an object, true or false.")
    return {"anyOf": Dependency([without, beside], place)}


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
