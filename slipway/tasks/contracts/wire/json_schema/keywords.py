"""Reads the keywords of one schema: which there are, and what each type's own say."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..grammar import GrammarError
from ..grammar.disjoint import is_never, others_of
from ..grammar.formats import ANY_TEXT, NUMBERS, PATTERNS, format_language
from ..grammar.numbers import Bounds as NumberBounds
from ..grammar.patterns import read_pattern
from ..grammar.regular import Regex
from .limits import MAX_ENUM, MAX_NAME, MAX_REPEATS, SchemaError

ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "example", "$schema", "$id", "id", "$anchor", "$comment"),
        *("deprecated", "readOnly", "writeOnly", "$defs", "definitions", "discriminator", "externalDocs", "xml"),
        *("contentMediaType", "contentEncoding", "contentSchema", "$vocabulary", "$dynamicAnchor"),
    }
)
"""Keywords that describe values and restrict none, as `x-...` do; `discriminator` repeats what the options say."""
BY_TYPE: Mapping[str, frozenset[str]] = {
    "object": frozenset(
        {"properties", "required", "additionalProperties", "unevaluatedProperties", "propertyNames"}
        | {"minProperties", "maxProperties"}
    ),
    "array": frozenset({"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "format", "pattern", "allOf"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
CHOICES = ("anyOf", "oneOf")
OF_NO_LANGUAGE = frozenset({"regex", "relative-json-pointer"})
"""Formats of JSON Schema that are not written. Others that are not known are what the pattern beside them says."""
WHOLE = ("$ref", "enum", "const", "anyOf", "oneOf", "allOf", "not")
"""Keywords that say what a value is without `type`."""


def token(name: str | int) -> str:
    """A name as a part of a place (RFC 6901), within a URI."""
    return str(name).replace("~", "~0").replace("/", "~1").replace("%", "%25")


def words_of(schema: Any, at: str) -> dict[str, Any]:
    """The keywords of a schema that restrict its values."""
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise SchemaError(f"{at[:128]} is {str(schema)[:64]!r}; expected an object or true.")
    words = {name: each for name, each in schema.items() if name not in ANNOTATIONS and not name.startswith("x-")}
    for name, neutral in (("uniqueItems", False), ("nullable", False)):
        if words.get(name) is neutral:
            del words[name]
    for name, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if words.get(exclusive) is False or (
            words.get(exclusive) is True and name in words
        ):  # of draft 4 and OpenAPI 3.0
            words |= {exclusive: words.pop(name)} if words.pop(exclusive) else {}
    if words.get("nullable") is True and (kinds := words.get("type")) is not None:  # of OpenAPI 3.0
        del words["nullable"]
        words["type"] = list(dict.fromkeys([*(kinds if isinstance(kinds, list) else [kinds]), "null"]))
    return words


def is_patterns(schemas: Any) -> bool:
    """Whether they are patterns of one text, which zod writes so."""
    return isinstance(schemas, list) and all(isinstance(each, dict) and {*each} == {"pattern"} for each in schemas)


def is_several(words: Mapping[str, Any]) -> bool:
    """Whether a schema is several that all hold: those of `allOf`, or a choice and what is beside it."""
    if "allOf" in words and not is_patterns(words["allOf"]):
        return True
    return len(words) > 1 and any(keyword in words for keyword in CHOICES)


def types_of(words: Mapping[str, Any], at: str) -> list[str]:
    """The types that a value may have, by `type` or by keywords that only one type has."""
    found = words.get("type")
    if found is None:
        fitting = [kind for kind, keywords in BY_TYPE.items() if keywords.intersection(words)]
        if len(fitting) == 1 and set(words) <= BY_TYPE[fitting[0]]:
            return fitting
        if {"integer", "number"} & set(fitting) and set(words) <= BY_TYPE["number"] - {"format"}:
            return ["number"]
    kinds: list[Any] = found if isinstance(found, list) else [found]
    if (
        not kinds
        or len(kinds) != len({str(kind) for kind in kinds})
        or not all(isinstance(kind, str) and kind in BY_TYPE for kind in kinds)
    ):
        others = [
            word
            for word in words
            if word not in {"type", *WHOLE} and not any(word in each for each in BY_TYPE.values())
        ]
        if others or "not" in words:
            check_alone(words, frozenset().union(*BY_TYPE.values()), at)
        raise SchemaError(
            f"{at[:128]} has the type {str(found)[:64]!r}; expected {', '.join(BY_TYPE)}, a list of these, or one of "
            "$ref, enum, const, anyOf and oneOf instead."
        )
    return kinds


def check_alone(words: Mapping[str, Any], allowed: frozenset[str] | set[str], at: str) -> None:
    """Refuse keywords besides those that are enforced together.

    Raises:
        SchemaError: names the others.
    """
    others = [word for word in words if word not in allowed]
    if others:
        raise SchemaError(
            f"{at[:128]} has {', '.join(word[:64] for word in others[:5])}, which is not enforced there. Leave it out."
        )


def enum_of(words: Mapping[str, Any], at: str) -> list[Any]:
    """The values that `enum` or `const` lists.

    Raises:
        SchemaError: there are none or too many, or other keywords beside them.
    """
    check_alone(words, {"enum", "const", "type"}, at)
    values = words.get("enum", [words.get("const")])
    if not isinstance(values, list) or not 0 < len(values) <= MAX_ENUM:
        raise SchemaError(f"{at[:128]}/enum is not a list of 1 to {MAX_ENUM} values.")
    return values


def bounds_of(words: Mapping[str, Any], low: str, high: str, at: str) -> tuple[int, int | None]:
    """The least and most that two keywords name; None: no bound."""
    least, most = words.get(low, 0), words.get(high)
    for name, each in ((low, least), (high, 0 if most is None else most)):
        whole = isinstance(each, int | float) and not isinstance(each, bool) and each == int(each)
        if not whole or not 0 <= each <= MAX_REPEATS:
            raise SchemaError(
                f"{at[:128]}: {name} is {str(each)[:64]}; expected a whole number from 0 to {MAX_REPEATS}."
            )
    if most is not None and least > most:
        raise SchemaError(f"{at[:128]}: {low} is more than {high}.")
    return int(least), None if most is None else int(most)


def number_bounds(words: Mapping[str, Any], at: str, *, whole: bool) -> NumberBounds:
    """The bounds and the step of a number, by its keywords and its format."""
    numbers: dict[str, Decimal] = {}
    for name in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"):
        if name in words:
            value = words[name]
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SchemaError(f"{at[:128]}/{name} is {str(value)[:64]!r}; expected a number.")
            numbers[name] = Decimal(repr(value))
    if numbers.get("multipleOf", 1) <= 0:
        raise SchemaError(f"{at[:128]}: multipleOf is {numbers['multipleOf']}; expected a number above 0.")
    lows = [(numbers[name], name != "minimum") for name in ("minimum", "exclusiveMinimum") if name in numbers]
    highs = [(numbers[name], name == "maximum") for name in ("maximum", "exclusiveMaximum") if name in numbers]
    known = _format_of(words, at)
    if known is not None and known not in NUMBERS:
        raise SchemaError(f"{at[:128]} has the format {known[:64]!r}; expected {', '.join(NUMBERS)}.")
    least, most = NUMBERS.get(str(known), (None, None))
    lows += [] if least is None else [(Decimal(least), False)]
    highs += [] if most is None else [(Decimal(most), True)]
    low, above = max(lows, default=(None, False))
    high, reached = min(highs, default=(None, True))
    return NumberBounds(whole, low, high, above, not reached, numbers.get("multipleOf"))


def _format_of(words: Mapping[str, Any], at: str) -> str | None:
    name = words.get("format")
    if name is not None and not isinstance(name, str):
        raise SchemaError(f"{at[:128]}/format is {str(name)[:64]!r}; expected a text.")
    return name


def languages_of(words: Mapping[str, Any], at: str) -> list[Regex]:
    """What the format and the patterns of a text say."""
    found: list[Regex] = []
    name = _format_of(words, at)
    if name in PATTERNS:
        found.append(format_language(name))
    elif name is not None and name not in ANY_TEXT and (name in OF_NO_LANGUAGE or "pattern" not in words):
        raise SchemaError(
            f"{at[:128]} has the format {name[:64]!r}; expected {', '.join(sorted(PATTERNS))}. Use one of "
            "these, a pattern, or leave it out."
        )
    patterns = [words["pattern"]] if "pattern" in words else []
    others = words.get("allOf", [])
    if not isinstance(others, list):
        raise SchemaError(f"{at[:128]}/allOf is not a list of schemas.")
    for number, each in enumerate(others):  # zod writes several patterns of one text so
        inner = words_of(each, f"{at}/allOf/{number}")
        check_alone(inner, {"pattern"}, f"{at}/allOf/{number}")
        patterns += inner.values()
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise SchemaError(f"{at[:128]}/pattern is {str(pattern)[:64]!r}; expected a text.")
        try:
            found.append(read_pattern(pattern))
        except GrammarError as error:
            raise SchemaError(
                f"{at[:128]} has the pattern {pattern[:64]!r}, which is not enforced: {error}. Simplify it or leave it "
                "out."
            ) from error
    return found


def items_of(words: Mapping[str, Any], at: str) -> tuple[list[Any], Any, int, int | None]:
    """The schemas of the first items, that of all others, and the least and most items."""
    first, rest = words.get("prefixItems", []), words.get("items", True)
    if isinstance(rest, list) and "prefixItems" not in words:  # as drafts before 2020-12 write it
        first, rest = rest, words.get("additionalItems", True)
    if not isinstance(first, list):
        raise SchemaError(f"{at[:128]}/prefixItems is not a list of schemas.")
    least, most = bounds_of(words, "minItems", "maxItems", at)
    if "minItems" not in words:
        least = len(first) if most is None else min(len(first), most)
    return first, rest, least, most


def properties_of(words: Mapping[str, Any], at: str) -> tuple[dict[str, Any], list[str]]:
    """The schemas of the properties that are named, and the names that are required."""
    properties, required = words.get("properties", {}), words.get("required", [])
    if not isinstance(properties, dict):
        raise SchemaError(f"{at[:128]}/properties is {str(properties)[:64]!r}; expected an object.")
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise SchemaError(f"{at[:128]}/required is not a list of names.")
    others = others_of(words)
    missing = [name for name in required if name not in properties]
    if missing and is_never(others):
        raise SchemaError(f"{at[:128]} requires {missing[0][:64]!r}, which its properties do not have.")
    if long := [name for name in [*properties, *required] if len(name) > MAX_NAME]:
        raise SchemaError(f"{at[:128]} has the property {long[0][:64]!r}...; expected at most {MAX_NAME} characters.")
    return properties, required
