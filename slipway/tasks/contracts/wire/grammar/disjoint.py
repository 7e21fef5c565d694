"""Whether two JSON schemas have no value in common, as far as that is seen without solving anything. Pure.

All schemas here are keywords that restrict values, without `$ref` on their own level.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Words = Mapping[str, Any]
Resolve = Callable[[Any], Words]
"""The keywords of a schema, those of another one where it only refers to that."""


def is_never(schema: Any) -> bool:
    """Whether nothing obeys a schema."""
    return schema is False or (isinstance(schema, dict) and schema.get("not", False) in ({}, True) and "not" in schema)


def kinds_of(value: Any) -> Iterator[str]:
    """The types that a value has: a whole number has two."""
    if isinstance(value, str):
        yield "string"
    elif isinstance(value, bool):
        yield "boolean"
    elif value is None:
        yield "null"
    elif isinstance(value, dict):
        yield "object"
    elif isinstance(value, list):
        yield "array"
    else:
        yield "number"
        if isinstance(value, int) or value.is_integer():
            yield "integer"


def key(value: Any) -> str:
    """A text that equal values have in common: 1 and 1.0 are equal, 1 and true are not."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def distinct(values: Iterable[Any]) -> list[Any]:
    """Values in their order, each once."""
    return list({key(value): value for value in values}.values())


def listed_values(words: Words) -> list[Any] | None:
    """The values of `const` or `enum`; None where neither is there."""
    if "const" in words:
        return [words["const"]]
    values = words.get("enum")
    return values if isinstance(values, list) and values else None


def types_apart(one: Words, other: Words) -> bool:
    """Whether two schemas differ in `type`, or in the values of `const` or `enum`."""
    values = [listed_values(one), listed_values(other)]
    if values[0] is not None and values[1] is not None:
        return {key(value) for value in values[0]}.isdisjoint(key(value) for value in values[1])
    kinds = [
        _stated(words) if listed is None else {kind for value in listed for kind in kinds_of(value)}
        for words, listed in zip((one, other), values, strict=True)
    ]
    return bool(kinds[0] and kinds[1]) and not kinds[0] & kinds[1]


def _stated(words: Words) -> set[Any]:
    """The types that `type` names; none where it is open."""
    named = words.get("type", [])
    kinds = {str(kind) for kind in (named if isinstance(named, list) else [named])}
    return kinds | {"integer"} if "number" in kinds else kinds


def contradict(one: Words, other: Words, resolve: Resolve) -> bool:
    """Whether nothing obeys both, by their types and listed values or by those of a required property."""
    if types_apart(one, other):
        return True
    if "object" not in (one.get("type"), other.get("type")):
        return False
    shared = [
        (_properties(one)[name], _properties(other)[name])
        for name in {*_required(one), *_required(other)}
        if name in _properties(one) and name in _properties(other)
    ]
    return any(any(map(is_never, pair)) or types_apart(*map(resolve, pair)) for pair in shared)


def requires_never(parts: Sequence[Words]) -> bool:
    """Whether one of the schemas of an object requires a property that another one forbids by its name."""
    required = {name for words in parts for name in _required(words)}
    return any(name in required and is_never(each) for words in parts for name, each in _properties(words).items())


def telling_property(objects: Sequence[Words], resolve: Resolve) -> str | None:
    """The property whose listed values tell some objects apart, once it is required; None where there is none."""
    for name in _properties(objects[0]):
        listed = [_values_of(words, name, resolve) for words in objects]
        keys = [{key(value) for value in values or ()} for values in listed]
        if all(keys) and sum(map(len, keys)) == len(set().union(*keys)):
            return str(name)
    return None


def objects_apart(one: Words, other: Words, resolve: Resolve) -> bool:
    """Whether no object that is written for either schema obeys the other one.

    An object has no properties that its schema does not name, unless `additionalProperties` allows them.
    """
    for name in set(_required(one)) & set(_required(other)):
        values = [_values_of(words, name, resolve) for words in (one, other)]
        if values[0] and values[1] and {key(each) for each in values[0]}.isdisjoint(map(key, values[1])):
            return True
    pairs = ((one, other), (other, one))
    if any(_forbids(words, name) for words, against in pairs for name in _required(against)):
        return True
    return all(
        is_never(others_of(words)) and any(name not in _properties(words) for name in _required(against))
        for words, against in pairs
    )


def _properties(words: Words) -> Mapping[str, Any]:
    found = words.get("properties", {})
    return found if isinstance(found, dict) else {}


def _required(words: Words) -> list[str]:
    found = words.get("required", [])
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def others_of(words: Words) -> Any:
    """The schema of properties that an object does not name: none are written beside named ones unless it says so."""
    return words.get("additionalProperties", words.get("unevaluatedProperties", not words.get("properties", {})))


def _values_of(words: Words, name: str, resolve: Resolve) -> list[Any] | None:
    inner = _properties(words).get(name, True)
    return None if is_never(inner) or inner is True else listed_values(resolve(inner))


def _forbids(words: Words, name: str) -> bool:
    """Whether no object that obeys a schema, whoever writes it, has a property."""
    others = words.get("additionalProperties", words.get("unevaluatedProperties", True))
    return is_never(_properties(words).get(name, others))


def all_apart(schemas: Sequence[Words], apart: Callable[[Words, Words], bool]) -> bool:
    """Whether every two of them are."""
    return all(apart(one, other) for one, other in itertools.combinations(schemas, 2))
