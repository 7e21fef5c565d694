"""Several JSON schemas that all hold, as one schema. Pure, standard library only.

Only keywords that restrict values come here, without `$ref`: whoever calls resolves references first.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import GrammarError

Words = Mapping[str, Any]
PROPERTIES, OTHERS = "properties", "additionalProperties"
OF_ITEMS = ("items", "prefixItems", "additionalItems")


def merged(parts: Sequence[Words]) -> dict[str, Any]:
    """The keywords of a schema that is obeyed by what obeys all parts. Schemas within become `allOf` of theirs.

    Raises:
        GrammarError: two parts say what no keyword can say together; the text names it.
    """
    whole: dict[str, Any] = {}
    patterns: list[Any] = []
    for part in parts:
        patterns += part.get("allOf", [])  # of patterns: all else has become parts
        patterns += [{"pattern": part["pattern"]}] if "pattern" in part else []
        for name, value in part.items():
            if name not in {"pattern", "allOf", PROPERTIES, OTHERS}:
                whole[name] = _both(name, whole[name], value) if name in whole else value
    if sum(any(name in part for name in OF_ITEMS) for part in parts) > 1 and {"prefixItems", "additionalItems"} & {
        *whole
    }:
        raise GrammarError("allOf has several schemas with items, of which some are prefixItems")
    if len(patterns) == 1:
        whole |= patterns[0]
    elif patterns:
        whole["allOf"] = patterns
    return whole | _objects(parts)


def _objects(parts: Sequence[Words]) -> dict[str, Any]:
    """The properties of all parts. Each obeys what every part says of it, or of others where that does not name it."""
    found: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part.get(PROPERTIES, {}), dict):
            raise GrammarError(f"allOf has properties that are {str(part[PROPERTIES])[:64]!r}; expected an object")
    names = dict.fromkeys(name for part in parts for name in part.get(PROPERTIES, {}))
    if any(PROPERTIES in part for part in parts):
        found[PROPERTIES] = {
            name: _all([part.get(PROPERTIES, {}).get(name, part.get(OTHERS, True)) for part in parts]) for name in names
        }
    if others := [part[OTHERS] for part in parts if OTHERS in part]:
        found[OTHERS] = _all(others)
    return found


def _all(schemas: Sequence[Any]) -> Any:
    """One schema for what obeys all of these."""
    if any(schema is False for schema in schemas):
        return False
    distinct: list[Any] = []
    for schema in schemas:
        if schema is not True and schema != {} and schema not in distinct:
            distinct.append(schema)
    if not distinct:
        return True
    return distinct[0] if len(distinct) == 1 else {"allOf": distinct}


def _both(name: str, one: Any, other: Any) -> Any:
    """One value of a keyword for two."""
    if one == other and isinstance(one, bool) == isinstance(other, bool):
        return one
    if name in JOINED:
        return JOINED[name](one, other)
    raise GrammarError(f"allOf has {name} twice, which does not become one: {str(one)[:64]!r} and {str(other)[:64]!r}")


def _bound(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def stricter(one: Any, other: Any) -> Any:
        odd = [each for each in (one, other) if isinstance(each, bool) or not isinstance(each, int | float)]
        return odd[0] if odd else choose(one, other)

    return stricter


def _types(one: Any, other: Any) -> list[Any]:
    ones, others = (each if isinstance(each, list) else [each] for each in (one, other))
    common = [kind for kind in ones if kind in others]
    for kinds, wider in ((ones, others), (others, ones)):
        if "integer" in kinds and "number" in wider and "integer" not in common and "number" not in common:
            common.append("integer")
    if not common:
        raise GrammarError(f"allOf has the types {str(one)[:64]!r} and {str(other)[:64]!r}, which no value has")
    return common


def _values(one: Any, other: Any) -> list[Any]:
    if not isinstance(one, list) or not isinstance(other, list):
        raise GrammarError("allOf has an enum that is not a list of values")
    common = [each for each in one if any(each == found and type(each) is type(found) for found in other)]
    if not common:
        raise GrammarError("allOf has enums without a common value")
    return common


def _names(one: Any, other: Any) -> Any:
    if not isinstance(one, list) or not isinstance(other, list):
        raise GrammarError("allOf has a required that is not a list of names")
    return [*one, *(name for name in other if name not in one)]


JOINED: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), _bound(max)),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), _bound(min)),
    "type": _types,
    "enum": _values,
    "required": _names,
    "items": lambda one, other: _all([one, other]),
}
