"""The part of JSON Schema that an answer can be made to obey, the same for every engine. Pure.

An engine's own compiler is no judge: at some schemas, xgrammar as OpenVINO GenAI 2026.4 has it ends the engine, and
it leaves out keywords that it does not know without a word (docs/decisions/0021-sampling-parameters.md). What passes
here is known to compile and to be obeyed whole. The models of Triton share this file by a link, so it imports nothing
of Slipway.
"""

import json
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from .bounded_json import Bounds, BoundsError, read

MAX_CHARS = 32_768
MAX_SCHEMAS = 256
"""Schemas within a schema, each of which the engine compiles while other requests wait."""
MAX_DEPTH = 16
MAX_ENUM = 256
MAX_REPEATS = 256
"""The most items or characters that a bound may name: a larger one takes seconds to compile."""
MAX_ALL_REPEATS = 1024
"""All bounds of a schema together. Compilers make a state of each repetition and compare those of neighbours: four
texts of at most 256 characters take 0.3 s, sixteen 5 s, and an anyOf of 80 more than 100 s (xgrammar in OpenVINO GenAI
2026.4, a vocabulary of 768)."""
MAX_INTEGER = 2**53

BOUNDS = Bounds(chars=MAX_CHARS, depth=64)
"""A schema within a schema is two or three levels of JSON below it."""
NAME = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_$ .-]{0,63}")
DEFINITION = re.compile(r"#/(\$defs|definitions)/([A-Za-z0-9_.-]{1,64})")
SCALARS = (str, bool, int, float, type(None))
ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated"),
        *("readOnly", "writeOnly"),
    }
)
"""Keywords that describe values and restrict none. No compiler sees them: their values may be anything."""
DEFINITIONS = ("$defs", "definitions")
FORMATS = frozenset({"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"})
BY_TYPE: Mapping[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "format"}),
    "integer": frozenset({"minimum", "maximum"}),
    "number": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
}


class SchemaError(ValueError):
    """The schema cannot be enforced; the text says where, why and what to do."""


def checked_schema(text: str) -> str:
    """The schema as compact ASCII JSON, to be given to an engine.

    Annotations are left out. An object that names its properties and says nothing of others gets none: answers obey
    the schema either way.

    Raises:
        SchemaError: it is not JSON, too large, contradicts itself, or uses what cannot be enforced.
    """
    try:
        schema = read(text, BOUNDS)
    except BoundsError as error:
        raise SchemaError(f"the schema {str(error)[:128]}.") from error
    if not isinstance(schema, dict):
        raise SchemaError(f"the schema is {text[:64]}; expected a JSON object.")
    _Schema(schema).check()
    return json.dumps(schema, separators=(",", ":"))


class _Schema:
    """One whole schema, with what its definitions are called."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._left, self._repeats = root, MAX_SCHEMAS, MAX_ALL_REPEATS

    def check(self) -> None:
        """Check the schema, and leave its annotations out."""
        found: dict[str, Any] = {}
        for group in DEFINITIONS:
            definitions = self._root.get(group, {})
            if not isinstance(definitions, dict):
                raise SchemaError(f"#/{group} is {str(definitions)[:64]!r}; expected an object.")
            found |= {f"#/{group}/{name}": definition for name, definition in definitions.items()}
        for at, definition in found.items():
            if not DEFINITION.fullmatch(at):
                raise SchemaError(f"{at[:128]!r} has a wrong name; use letters, digits, '.', '_' and '-'.")
            self._check(definition, at, 1)
        _refuse_circles(found)
        self._check(self._root, "#", 0)

    def _check(self, schema: Any, at: str, depth: int) -> None:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise SchemaError(
                f"the schema is too large at {at[:128]}: at most {MAX_SCHEMAS} schemas within it, {MAX_DEPTH} deep."
            )
        if schema is True or schema == {}:
            return
        if not isinstance(schema, dict):
            raise SchemaError(f"{at[:128]} is {str(schema)[:64]!r}; expected an object or true.")
        for annotation in ANNOTATIONS.intersection(schema):
            del schema[annotation]
        words = {key: value for key, value in schema.items() if not (at == "#" and key in DEFINITIONS)}
        if not words:
            return
        checks = {"$ref": self._ref, "enum": _enum, "const": _const, "anyOf": self._choice}
        check = next((check for word, check in checks.items() if word in words), None)
        if check is not None:
            check(words, at, depth)
        else:
            self._typed(words, at, depth)
            _state_what_is_open(schema)

    def _ref(self, words: Mapping[str, Any], at: str, _depth: int) -> None:
        _alone(words, {"$ref"}, at)
        reference = words["$ref"]
        found = DEFINITION.fullmatch(reference) if isinstance(reference, str) else None
        if found is None or found[2] not in self._root.get(found[1], {}):
            raise SchemaError(
                f"{at[:128]} has $ref {str(reference)[:64]!r}; expected #/$defs/ and a name that is there."
            )

    def _choice(self, words: Mapping[str, Any], at: str, depth: int) -> None:
        _alone(words, {"anyOf"}, at)
        if not isinstance(words["anyOf"], list) or not words["anyOf"]:
            raise SchemaError(f"{at[:128]}/anyOf is not a list of schemas.")
        for number, each in enumerate(words["anyOf"]):
            self._check(each, f"{at}/anyOf/{number}", depth + 1)

    def _typed(self, words: Mapping[str, Any], at: str, depth: int) -> None:
        kinds = _types(words, at)
        allowed = frozenset({"type"}).union(*(BY_TYPE[kind] for kind in kinds))
        _alone(words, allowed, at)
        if "object" in kinds:
            self._object(words, at, depth)
        if "array" in kinds:
            self._array(words, at, depth)
        if "string" in kinds:
            self._bounded(words, "minLength", "maxLength", at)
            _format(words, at)
        if {"integer", "number"} & set(kinds):
            _numbers(words, at, whole="integer" in kinds)

    def _object(self, words: Mapping[str, Any], at: str, depth: int) -> None:
        properties, required = words.get("properties", {}), words.get("required", [])
        if not isinstance(properties, dict) or not all(NAME.fullmatch(name) for name in properties):
            raise SchemaError(
                f"{at[:128]}/properties is not an object of names with at most 64 letters, digits, spaces and _ $ . -"
            )
        if not isinstance(required, list) or not all(isinstance(each, str) and each in properties for each in required):
            raise SchemaError(f"{at[:128]}/required is not a list of names that properties has.")
        for name, each in properties.items():
            self._check(each, f"{at}/properties/{name}", depth + 1)
        if words.get("additionalProperties") is not False:
            self._check(words.get("additionalProperties", True), f"{at}/additionalProperties", depth + 1)

    def _array(self, words: Mapping[str, Any], at: str, depth: int) -> None:
        first = words.get("prefixItems", [])
        if not isinstance(first, list) or ("prefixItems" in words and ("minItems" in words or "maxItems" in words)):
            raise SchemaError(
                f"{at[:128]}/prefixItems is not a list of schemas, or stands beside minItems or maxItems."
            )
        self._bounded(words, "minItems", "maxItems", at)
        for number, each in enumerate(first):
            self._check(each, f"{at}/prefixItems/{number}", depth + 1)
        if not (first and words.get("items") is False):
            self._check(words.get("items", True), f"{at}/items", depth + 1)

    def _bounded(self, words: Mapping[str, Any], low: str, high: str, at: str) -> None:
        _ordered(words, low, high, at, most=MAX_REPEATS)
        self._repeats -= max(words.get(low, 0), words.get(high, 0))
        if self._repeats < 0:
            raise SchemaError(
                f"{at[:128]}: all minLength, maxLength, minItems and maxItems of the schema together are more than "
                f"{MAX_ALL_REPEATS}. Lower them, or leave some out."
            )


def _refuse_circles(definitions: Mapping[str, Any]) -> None:
    """Refuse a definition that is made of itself before any property or item."""
    try:
        TopologicalSorter({at: list(_made_of(each)) for at, each in definitions.items()}).prepare()
    except CycleError as error:
        raise SchemaError(f"{error.args[1][0][:128]} refers to itself without end.") from error


def _made_of(schema: Any) -> Iterator[str]:
    """The definitions of which one of them is the whole value."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for each in schema.get("anyOf", ()):
            yield from _made_of(each)


def _state_what_is_open(schema: dict[str, Any]) -> None:
    """Write down what JSON Schema allows where nothing is said: xgrammar takes silence for none."""
    kinds = _types(schema, "")
    if "array" in kinds and "prefixItems" not in schema:
        schema.setdefault("items", {})
    if "object" in kinds and not schema.get("properties"):
        schema.setdefault("additionalProperties", True)


def _types(words: Mapping[str, Any], at: str) -> list[str]:
    found = words.get("type")
    kinds: list[Any] = found if isinstance(found, list) else [found]
    if (
        not kinds
        or len(kinds) != len({str(kind) for kind in kinds})
        or not all(isinstance(kind, str) and kind in BY_TYPE for kind in kinds)
    ):
        raise SchemaError(
            f"{at[:128]} has the type {str(found)[:64]!r}; expected {', '.join(BY_TYPE)}, a list of these, or one of "
            "$ref, enum, const and anyOf instead."
        )
    return kinds


def _alone(words: Mapping[str, Any], allowed: frozenset[str] | set[str], at: str) -> None:
    others = [word for word in words if word not in allowed]
    if others:
        raise SchemaError(
            f"{at[:128]} has {', '.join(word[:64] for word in others[:5])}, which is not enforced there. Leave it out."
        )


def _enum(words: Mapping[str, Any], at: str, _depth: int) -> None:
    values = words["enum"]
    _alone(words, {"enum", "type"}, at)
    if not isinstance(values, list) or not 0 < len(values) <= MAX_ENUM:
        raise SchemaError(f"{at[:128]}/enum is not a list of 1 to {MAX_ENUM} values.")
    for value in values:
        _scalar(value, words, at)


def _const(words: Mapping[str, Any], at: str, _depth: int) -> None:
    _alone(words, {"const", "type"}, at)
    _scalar(words["const"], words, at)


def _scalar(value: Any, words: Mapping[str, Any], at: str) -> None:
    kinds = _types(words, at) if "type" in words else list(BY_TYPE)
    if not isinstance(value, SCALARS) or not any(kind in kinds for kind in _kinds_of(value)):
        raise SchemaError(
            f"{at[:128]} names the value {str(value)[:64]!r}; expected a text, a number, true, false or null that its "
            "type allows."
        )
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise SchemaError(f"{at[:128]} names the number {value}; whole numbers are from -2^53 to 2^53.")


def _kinds_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield "string"
    elif isinstance(value, bool):
        yield "boolean"
    elif value is None:
        yield "null"
    else:
        yield "number"
        if isinstance(value, int):
            yield "integer"


def _format(words: Mapping[str, Any], at: str) -> None:
    if "format" in words and (words["format"] not in FORMATS or {"minLength", "maxLength"} & set(words)):
        raise SchemaError(
            f"{at[:128]} has the format {str(words['format'])[:64]!r}; expected {', '.join(sorted(FORMATS))}, without "
            "bounds of length."
        )


def _ordered(words: Mapping[str, Any], low: str, high: str, at: str, *, most: int) -> None:
    values = [words.get(low, 0), words.get(high, most)]
    if not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= most for each in values):
        raise SchemaError(f"{at[:128]}: {low} and {high} are whole numbers from 0 to {most}.")
    if values[0] > values[1]:
        raise SchemaError(f"{at[:128]}: {low} is more than {high}.")


def _numbers(words: Mapping[str, Any], at: str, *, whole: bool) -> None:
    low, high = words.get("minimum", -MAX_INTEGER), words.get("maximum", MAX_INTEGER)
    kinds = (int,) if whole else (int, float)
    if any(isinstance(each, bool) or not isinstance(each, kinds) or abs(each) > MAX_INTEGER for each in (low, high)):
        raise SchemaError(f"{at[:128]}: minimum and maximum are numbers from -2^53 to 2^53, whole ones for integers.")
    if low > high:
        raise SchemaError(f"{at[:128]}: minimum is more than maximum.")
