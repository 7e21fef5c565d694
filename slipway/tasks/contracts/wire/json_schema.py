"""From a JSON Schema to the grammar that an answer obeys, the same for every engine. Pure.

No engine's own reading of a schema is used: xgrammar leaves out keywords that it does not know without a word, and
takes 3 for an integer from 7 on (docs/decisions/0044-grammars-of-our-own.md). What passes here is written as a
grammar and obeyed whole; everything else is refused by its place and name. The models of Triton share this file and the
folder grammar/ by links, so they import nothing of Slipway.
"""

import json
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import unquote

from .bounded_json import Bounds, BoundsError, read
from .grammar import GrammarError
from .grammar.automaton import Automaton, common
from .grammar.disjoint import (
    all_apart,
    distinct,
    is_never,
    key,
    kinds_of,
    listed_values,
    objects_apart,
    others_of,
    telling_property,
    types_apart,
)
from .grammar.ebnf import BLANK, CHAR, VALUE, Dialect, Grammar, json_text, literal, times
from .grammar.formats import ANY_TEXT, NUMBERS, PATTERNS, format_language, format_languages
from .grammar.merging import merged
from .grammar.numbers import Bounds as NumberBounds
from .grammar.numbers import number_language
from .grammar.patterns import ANYTHING, read_pattern
from .grammar.regular import ANY, Regex, Repeat, one_of, text

MAX_CHARS = 32_768
MAX_SCHEMAS = 256
"""Schemas within a schema."""
MAX_DEPTH = 16
MAX_ENUM = 1024
MAX_COMPARED = 32
"""Options of a oneOf that are compared with one another."""
MAX_NAME = 256
"""Characters of a property's name."""
MAX_REPEATS = 256
"""The most items or characters that a bound may name: 60 tokens of a text of 256 take 0.6 s, of 512 2 s (OpenVINO GenAI
2026.4, a vocabulary of 768), in which all other answers wait."""
MAX_ALL_REPEATS = 1024
"""All bounds of a schema together."""

BOUNDS = Bounds(chars=MAX_CHARS, depth=64)
"""A schema within a schema is two or three levels of JSON below it."""
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
WHOLE = ("$ref", "enum", "const", "anyOf", "oneOf", "allOf", "not")
"""Keywords that say what a value is without `type`."""
SEPARATOR = f'{BLANK} "," {BLANK}'


class SchemaError(ValueError):
    """The schema cannot be enforced; the text says where, why and what to do."""


def compact_schema(schema: Any) -> str:
    """The schema as compact ASCII JSON, within the bounds of a text. Whether it can be enforced, grammar_of tells.

    Raises:
        SchemaError: it is too large or too deep, or no object.
    """
    text = json.dumps(schema, separators=(",", ":"))
    _read(text)
    return text


def grammar_of(text: str, dialect: Dialect = Dialect.RANGES) -> str:
    """The grammar of answers that obey a schema, in EBNF, root first.

    Answers have the properties of an object in the order of the schema. An object that names its properties and says
    nothing of others gets none.

    Raises:
        SchemaError: it is not JSON, too large, contradicts itself, or uses what cannot be enforced.
    """
    return _Translation(_read(text), dialect).grammar()


def _read(text: str) -> dict[str, Any]:
    try:
        schema = read(text, BOUNDS)
    except BoundsError as error:
        raise SchemaError(f"the schema {str(error)[:128]}.") from error
    if not isinstance(schema, dict):
        raise SchemaError(f"the schema is {text[:64]}; expected a JSON object.")
    return schema


class _Translation:
    """One whole schema on its way to a grammar."""

    def __init__(self, root: Mapping[str, Any], dialect: Dialect) -> None:
        self._root, self._grammar, self._left, self._repeats = root, Grammar(dialect), MAX_SCHEMAS, MAX_ALL_REPEATS
        self._rules: dict[tuple[str, str], str] = {("#", ""): "root"}
        self._waiting: list[tuple[str, str]] = [("#", "")]
        self._merges: dict[int, Mapping[str, Any]] = {}
        self._made_of: dict[str, set[str]] = {}
        """Places by the places that they are as a whole, before any property or item."""

    def grammar(self) -> str:
        """The text of all rules."""
        for group in ("$defs", "definitions"):
            if not isinstance(self._root.get(group, {}), dict):
                raise SchemaError(f"#/{group} is {str(self._root[group])[:64]!r}; expected an object.")
        self._grammar.common(BLANK)
        while self._waiting:
            place, required = self._waiting.pop()
            self._made_of.setdefault(place, set())
            body = self._value(self._at(place), place, 0, whole=place, required=required)
            self._grammar.add(body, self._rules[place, required])
        try:
            TopologicalSorter(self._made_of).prepare()
        except CycleError as error:
            raise SchemaError(f"{error.args[1][0][:128]} refers to itself without end.") from error
        self._check_ends()
        return self._grammar.text()

    def _check_ends(self) -> None:
        """Refuse a place whose values always need another one of it: no answer could ever be complete.

        Each round adds the places whose values can be completed with those of the places that are known to.
        """
        left, ending = dict.fromkeys(place for place, _ in self._rules), set[str]()
        while found := [place for place in left if self._ends(self._at(place), place, ending)]:
            ending.update(found)
            for place in found:
                del left[place]
        if left:
            raise SchemaError(
                f"{[*left][-1][:128]} requires itself, or a place that does: no answer could be complete. Leave a "
                "property out of required, or allow null."
            )

    def _ends(self, schema: Any, at: str, ending: AbstractSet[str]) -> bool:
        """Whether a value of the schema, which was translated, needs values of places in `ending` only."""
        words = _words(schema, at)
        if "$ref" in words:
            return _pointer(words["$ref"]) in ending
        if not words or "enum" in words or "const" in words:
            return True
        if "allOf" in words and not _is_patterns(words["allOf"]):
            return self._ends(self._merged(words, at), at, ending)
        for keyword in ("anyOf", "oneOf"):
            if keyword in words and "type" not in words:
                return any(self._ends(each, at, ending) for each in words[keyword] if not is_never(each))
        return any(all(self._ends(each, at, ending) for each in _needed(kind, words, at)) for kind in _types(words, at))

    def _value(self, schema: Any, at: str, depth: int, *, whole: str | None = None, required: str = "") -> str:
        """An expression for the values of a schema.

        Args:
            schema: what its values obey.
            at: where it stands.
            depth: schemas around it.
            whole: the rule whose value it is as a whole.
            required: a property that it must have, whatever it says of it.
        """
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise SchemaError(
                f"the schema is too large at {at[:128]}: at most {MAX_SCHEMAS} schemas within it, {MAX_DEPTH} deep."
            )
        words = _words(schema, at)
        if not words:
            return self._grammar.common(VALUE)
        if "allOf" in words and not _is_patterns(words["allOf"]):
            return self._value(self._merged(words, at), at, depth + 1, whole=whole, required=required)
        if "$ref" in words:
            _alone(words, {"$ref"}, at)
            return self._reference(words["$ref"], at, whole, required)
        if "enum" in words or "const" in words:
            return self._enum(words, at)
        for keyword in ("anyOf", "oneOf"):
            if keyword in words and "type" not in words:
                return self._combined(keyword, words, at, depth, whole)
        return self._typed(words, at, depth, required)

    def _reference(self, reference: Any, at: str, whole: str | None, required: str = "") -> str:
        target = _pointer(reference)
        if target is None or self._at(target) is None:
            raise SchemaError(
                f"{at[:128]} has $ref {str(reference)[:64]!r}; expected #, or #/$defs/ and a name that is there."
            )
        if whole is not None:
            self._made_of.setdefault(whole, set()).add(target)
        if (target, required) not in self._rules:
            self._rules[target, required] = self._grammar.name()
            self._waiting.append((target, required))
        return self._rules[target, required]

    def _at(self, place: str) -> Any:
        """The schema at a place of the root; None where there is none."""
        found: Any = self._root
        for token in place.split("/")[1:]:
            name = unquote(token).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return found

    def _resolved(self, schema: Any, at: str) -> Mapping[str, Any]:
        """The keywords of a schema, those of another one where it only refers to that."""
        for _ in range(MAX_DEPTH):
            words = _words(schema, at)
            if set(words) != {"$ref"}:
                return words
            target = _pointer(words["$ref"])
            schema = None if target is None else self._at(target)
        raise SchemaError(f"{at[:128]} refers to itself without end.")

    def _merged(self, words: Mapping[str, Any], at: str) -> Mapping[str, Any]:
        """One schema for one with `allOf`, made once."""
        number = id(words["allOf"])  # the list stays where it is, in the root or in a schema that was made here
        if number not in self._merges:
            self._merges[number] = self._merge(words, at)
        return self._merges[number]

    def _merge(self, words: Mapping[str, Any], at: str) -> Mapping[str, Any]:
        parts = self._parts(words, at, 0)
        if len(parts) == 1:
            return parts[0]
        if any("unevaluatedProperties" in part for part in parts[1:]):
            raise SchemaError(f"{at[:128]}: allOf has unevaluatedProperties within. Use additionalProperties instead.")
        try:
            return merged([self._resolved(part, at) for part in parts])
        except GrammarError as error:
            raise SchemaError(f"{at[:128]}: {error}. Write one schema instead.") from error

    def _parts(self, words: Mapping[str, Any], at: str, depth: int) -> list[Mapping[str, Any]]:
        """What is beside `allOf`, and then all schemas in it, without any `allOf` but of patterns."""
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise SchemaError(f"the schema is too large at {at[:128]}, or refers to itself without end.")
        inner = words.get("allOf")
        if inner is None or _is_patterns(inner):
            return [words]
        if not isinstance(inner, list) or not inner:
            raise SchemaError(f"{at[:128]}/allOf is not a list of schemas.")
        beside = {name: each for name, each in words.items() if name != "allOf"}
        found: list[Mapping[str, Any]] = [beside] if beside else []
        for number, each in enumerate(inner):
            place = f"{at}/allOf/{number}"
            part = _words(each, place)
            resolved = part if len(inner) == 1 and not beside else self._resolved(part, place)
            found += self._parts(resolved, place, depth + 1)
        return found

    def _enum(self, words: Mapping[str, Any], at: str) -> str:
        _alone(words, {"enum", "const", "type"}, at)
        values = words.get("enum", [words.get("const")])
        if not isinstance(values, list) or not 0 < len(values) <= MAX_ENUM:
            raise SchemaError(f"{at[:128]}/enum is not a list of 1 to {MAX_ENUM} values.")
        kinds = _types(words, at) if "type" in words else list(BY_TYPE)
        fitting = [value for value in values if any(kind in kinds for kind in kinds_of(value))]
        if "const" in words:
            fitting = [value for value in fitting if key(value) == key(words["const"])]
        if not fitting:
            raise SchemaError(f"{at[:128]} names no value that its type allows. Change the type or the values.")
        return self._listed(fitting, at)

    def _listed(self, values: Sequence[Any], at: str) -> str:
        """An expression for one of some values."""
        texts = [value for value in values if isinstance(value, str)]
        others = [json.dumps(value) for value in values if not isinstance(value, str | dict | list)]
        written = [self._literal(value) for value in values if isinstance(value, dict | list)]
        try:
            if texts:
                written.append(rf'"\"" {self._grammar.regex(one_of(texts))} "\""')
            if others:
                written.append(self._grammar.regex(one_of(others)))
        except GrammarError as error:
            raise SchemaError(f"{at[:128]}/enum is too large: {error}.") from error
        return _one_of(written)

    def _literal(self, value: Any) -> str:
        if isinstance(value, dict):
            members = [
                f'{literal(_quoted(name))} {BLANK} ":" {BLANK} {self._literal(each)}' for name, each in value.items()
            ]
            return _bracketed("{", members, "}")
        if isinstance(value, list):
            return _bracketed("[", [self._literal(each) for each in value], "]")
        written = json.dumps(value, ensure_ascii=False)
        self._spend(len(written), "an enum")
        return literal(written)

    def _combined(self, keyword: str, words: Mapping[str, Any], at: str, depth: int, whole: str | None) -> str:
        _alone(words, {keyword}, at)
        options = words[keyword]
        if not isinstance(options, list) or not options:
            raise SchemaError(f"{at[:128]}/{keyword} is not a list of schemas.")
        required = self._discriminator(options, at) if keyword == "oneOf" else ""
        written = []
        for number, each in enumerate(options):
            if not is_never(each):
                place = f"{at}/{keyword}/{number}"
                written.append(self._value(each, place, depth + 1, whole=whole, required=required))
        if not written:
            raise SchemaError(f"{at[:128]}/{keyword} allows nothing.")
        return _one_of(written)

    def _discriminator(self, options: Sequence[Any], at: str) -> str:
        """The property that tells those options of a oneOf apart that are objects; empty where nothing has to.

        Raises:
            SchemaError: an answer to one option might obey another one.
        """

        def resolve(schema: Any) -> Mapping[str, Any]:
            return self._resolved(schema, at)

        found = [resolve(each) for each in options if not is_never(each)]
        named = {"properties", "required"}
        objects = [words for words in found if words.get("type", "object") == "object" and named & {*words}]
        others = [words for words in found if words not in objects]
        name = telling_property(objects, resolve) if len(objects) > 1 else ""
        if name is None and len(objects) <= MAX_COMPARED:
            name = "" if all_apart(objects, lambda one, other: objects_apart(one, other, resolve)) else None
        kinds = [{"type": words.get("type")} for words in objects[:1]] if others else []
        untyped = bool(others) and any("type" not in words for words in objects)
        if name is None or untyped or len(others) > MAX_COMPARED or not all_apart([*others, *kinds], types_apart):
            raise SchemaError(
                f"{at[:128]} has oneOf, of which an answer could obey two options. It is enforced where they differ in "
                "type, in the values of const or enum, in such values of one property, or in what they require and "
                "forbid. Use anyOf, or add such a property."
            )
        return name

    def _typed(self, words: Mapping[str, Any], at: str, depth: int, required: str) -> str:
        kinds = _types(words, at)
        _alone(words, frozenset({"type"}).union(*(BY_TYPE[kind] for kind in kinds)), at)
        return _one_of([self._kind(kind, words, at, depth, required) for kind in kinds if not _covered(kind, kinds)])

    def _kind(self, kind: str, words: Mapping[str, Any], at: str, depth: int, required: str) -> str:
        if kind == "object":
            return self._object(words, at, depth, required)
        if kind == "array":
            return self._array(words, at, depth)
        if kind == "string":
            return self._string(words, at)
        if kind in ("integer", "number"):
            return self._number(words, at, whole=kind == "integer")
        return literal("null") if kind == "null" else _one_of([literal("true"), literal("false")])

    def _number(self, words: Mapping[str, Any], at: str, *, whole: bool) -> str:
        bounds = _number_bounds(words, at, whole=whole)
        try:
            return self._grammar.add(self._grammar.regex(number_language(bounds)))
        except GrammarError as error:
            raise SchemaError(f"{at[:128]}: {error}.") from error

    def _string(self, words: Mapping[str, Any], at: str) -> str:
        least, most = _ordered(words, "minLength", "maxLength", at)
        self._repeat(max(least, most or 0), at)
        inner = self._texts(_languages(words, at), least, most, at)
        return rf'"\"" {inner} "\""'

    def _texts(
        self, languages: Sequence[Regex], least: int, most: int | None, at: str, excluded: Sequence[str] = ()
    ) -> str:
        """An expression for what is between the quotes of a JSON string."""
        bounded = (least, most) != (0, None)
        try:
            if not languages and not excluded:
                if most is None:
                    return times(self._grammar.common(CHAR), least, None)
                return self._grammar.regex(Repeat(ANY, least, most))
            if len(languages) == 1 and not bounded and not excluded and languages[0] in format_languages():
                return self._grammar.regex(languages[0])
            return self._grammar.machine(_machine(languages, least, most, excluded))
        except GrammarError as error:
            raise SchemaError(
                f"{at[:128]}: {error}. Look at {', '.join(sorted(BY_TYPE['string']))}, and make them simpler."
            ) from error

    def _array(self, words: Mapping[str, Any], at: str, depth: int) -> str:
        first, rest, least, most = _items(words, at)
        if words.get("uniqueItems", False) is not False and (most is None or most > 1):
            return self._unique(words, at)
        here = [self._value(each, f"{at}/prefixItems/{number}", depth + 1) for number, each in enumerate(first)]
        others = None
        if not is_never(rest) and (most is None or most > len(first)):
            others = self._grammar.add(self._value(rest, f"{at}/items", depth + 1))
        more = others is not None
        if least > len(first) and not more:
            raise SchemaError(f"{at[:128]}: minItems is {least}; there are {len(first)} prefixItems and no others.")
        self._repeat(max(least, most or 0), at)
        known = here[: len(here) if most is None else most]
        if others is None:
            return _bracketed("[", known, "]", least=min(least, len(known)))
        left = None if most is None else most - len(known)
        return _bracketed("[", known, "]", least=least, others=others, others_most=left)

    def _unique(self, words: Mapping[str, Any], at: str) -> str:
        """An array of different ones of some values, in their order: no grammar remembers which were there."""
        first, rest, least, most = _items(words, at)
        listed = [] if first else listed_values(self._resolved(rest, f"{at}/items")) or []
        if words["uniqueItems"] is not True or not 0 < len(listed) <= MAX_REPEATS:
            raise SchemaError(
                f"{at[:128]} has uniqueItems, which is enforced for items with an enum of at most {MAX_REPEATS} values "
                "or with maxItems of at most 1. Name the values, or leave it out."
            )
        self._value(rest, f"{at}/items", 0)
        values = distinct(listed)
        most = len(values) if most is None else min(most, len(values))
        if least > most:
            raise SchemaError(f"{at[:128]}: minItems is {least}; there are {len(values)} different values.")
        self._spend(4 * len(values) * most, at)
        items = [self._grammar.add(self._listed([each], at)) for each in values]
        return f'"[" {BLANK} {self._chosen(items, 0, least, most, {})} "]"'

    def _chosen(
        self, items: Sequence[str], count: int, least: int, most: int, rules: dict[tuple[int, int], str]
    ) -> str:
        """What follows after `count` items: some of those that are left, in their order."""
        if not items or count == most:
            return BLANK if count else '""'
        if (len(items), count) not in rules:
            separator = f'{BLANK} "," {BLANK} ' if count else ""
            options = [f"{separator}{items[0]} {self._chosen(items[1:], count + 1, least, most, rules)}"]
            if count + len(items) > least:
                options.append(self._chosen(items[1:], count, least, most, rules))
            rules[len(items), count] = self._grammar.add(" | ".join(options))
        return rules[len(items), count]

    def _object(self, words: Mapping[str, Any], at: str, depth: int, must: str) -> str:
        properties, required = _properties(words, at)
        others = others_of(words)
        names = [*properties, *(name for name in required if name not in properties)]
        keys = _Keys(self._resolved(words.get("propertyNames", True), f"{at}/propertyNames"), f"{at}/propertyNames")
        members: list[tuple[str, bool]] = []
        for name in names:
            schema = properties.get(name, others)
            place = f"{at}/properties/{name.replace('~', '~0').replace('/', '~1')}"
            needed = name in required or name == must
            if is_never(schema) or not keys.allow(name):
                if needed:
                    raise SchemaError(f"{place[:128]} is required, but nothing is allowed there.")
                continue
            value = self._value(schema, place, depth + 1)
            written = _quoted(name)
            self._spend(len(written), at)
            members.append((f'{literal(written)} {BLANK} ":" {BLANK} {value}', needed))
        extra = None if is_never(others) else self._extra(others, keys, names, at, depth)
        return self._members(members, extra, words, at)

    def _extra(self, schema: Any, keys: "_Keys", names: Sequence[str], at: str, depth: int) -> str | None:
        """A property that the schema does not name; None where no name is left for one."""
        if keys.listed is not None:
            left = [name for name in keys.listed if name not in names]
            if not left:
                return None
            key = self._listed(left, f"{at}/propertyNames")
        else:
            inner = self._texts(keys.languages, keys.least, keys.most, f"{at}/propertyNames", names)
            key = rf'"\"" {inner} "\""'
        value = self._value(schema, f"{at}/additionalProperties", depth + 1)
        return self._grammar.add(f'{key} {BLANK} ":" {BLANK} {value}')

    def _members(
        self, members: Sequence[tuple[str, bool]], extra: str | None, words: Mapping[str, Any], at: str
    ) -> str:
        least, most = _ordered(words, "minProperties", "maxProperties", at)
        if (least, most) != (0, None):
            if members or least > 1:
                raise SchemaError(
                    f"{at[:128]} has minProperties or maxProperties, which are enforced for objects that name no "
                    "properties, and with minProperties of at most 1. Leave it out."
                )
            if extra is None:
                if least:
                    raise SchemaError(f"{at[:128]}: minProperties is {least}, but no property is allowed.")
                return _bracketed("{", [], "}")
            self._repeat(most or 1, at)
            return _bracketed("{", [], "}", least=least, others=extra, others_most=most)
        others = f"({SEPARATOR} {extra})*" if extra else ""
        first = next((number for number, (_, needed) in enumerate(members) if needed), None)
        if first is not None:
            before = [f"({member} {SEPARATOR})?" for member, _ in members[:first]]
            after = [
                f"{SEPARATOR} {member}" if needed else f"({SEPARATOR} {member})?"
                for member, needed in members[first + 1 :]
            ]
            inner = " ".join([*before, members[first][0], *after, others])
            return f'"{{" {BLANK} {inner} {BLANK} "}}"'
        tail, options = others, [f"{extra} {others}"] if extra else []
        for member, _ in reversed(members):
            options.insert(0, f"{member} {tail}")
            tail = self._grammar.add(f"({SEPARATOR} {member})? {tail}")
        inner = f"({_one_of(options)} {BLANK})?" if options else ""
        return f'"{{" {BLANK} {inner} "}}"'

    def _repeat(self, number: int, at: str) -> None:
        self._repeats -= number
        if self._repeats < 0:
            raise SchemaError(
                f"{at[:128]}: all bounds of length, items and properties together are more than {MAX_ALL_REPEATS}. "
                "Lower them, or leave some out."
            )

    def _spend(self, parts: int, at: str) -> None:
        try:
            self._grammar.spend(parts)
        except GrammarError as error:
            raise SchemaError(f"the schema is too large at {at[:128]}: {error}.") from error


class _Keys:
    """The names that `propertyNames` allows."""

    def __init__(self, words: Mapping[str, Any], at: str) -> None:
        self.listed: list[str] | None = None
        if "enum" in words or "const" in words:
            _alone(words, {"enum", "const", "type"}, at)
            values = words.get("enum", [words.get("const")])
            if not isinstance(values, list) or not 0 < len(values) <= MAX_ENUM:
                raise SchemaError(f"{at[:128]}/enum is not a list of 1 to {MAX_ENUM} values.")
            self.listed = [each for each in values if isinstance(each, str)]
            return
        _alone(words, {"type"} | BY_TYPE["string"], at)
        if words.get("type", "string") != "string":
            raise SchemaError(f"{at[:128]} has the type {str(words['type'])[:64]!r}; names are strings.")
        self.languages = _languages(words, at)
        self.least, self.most = _ordered(words, "minLength", "maxLength", at)
        self._machine: Automaton | None = None
        if self.languages or (self.least, self.most) != (0, None):
            try:
                self._machine = _machine(self.languages, self.least, self.most)
            except GrammarError as error:
                raise SchemaError(f"{at[:128]}: {error}.") from error

    def allow(self, name: str) -> bool:
        """Whether a property may be called so."""
        if self.listed is not None:
            return name in self.listed
        return self._machine is None or self._machine.matches(name)


def _machine(languages: Sequence[Regex], least: int, most: int | None, excluded: Sequence[str] = ()) -> Automaton:
    bounds = [Repeat(ANY, least, most)] if (least, most) != (0, None) else []
    return common([*languages, *bounds] or [ANYTHING], [text(name) for name in excluded])


def _words(schema: Any, at: str) -> dict[str, Any]:
    """The keywords of a schema that restrict its values."""
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise SchemaError(f"{at[:128]} is {str(schema)[:64]!r}; expected an object or true.")
    words = {name: each for name, each in schema.items() if name not in ANNOTATIONS and not name.startswith("x-")}
    for name, neutral in (("uniqueItems", False), ("nullable", False)):
        if words.get(name) is neutral:
            del words[name]
    return words


def _is_patterns(schemas: Any) -> bool:
    """Whether they are patterns of one text, which zod writes so."""
    return isinstance(schemas, list) and all(isinstance(each, dict) and {*each} == {"pattern"} for each in schemas)


def _pointer(reference: Any) -> str | None:
    if not isinstance(reference, str) or not re.fullmatch(r"#(/.{1,512})?", reference, re.DOTALL):
        return None
    return reference


def _covered(kind: str, kinds: Sequence[str]) -> bool:
    return kind == "integer" and "number" in kinds


def _one_of(options: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(options))
    return distinct[0] if len(distinct) == 1 else "(" + " | ".join(distinct) + ")"


def _quoted(name: str) -> str:
    return f'"{json_text(name)}"'


def _bracketed(
    opening: str,
    known: Sequence[str],
    closing: str,
    *,
    least: int | None = None,
    others: str | None = None,
    others_most: int | None = None,
) -> str:
    """An array or object: parts in their order, of which those from `least` on may be missing, and then others."""
    least = len(known) if least is None else least
    inner = ""
    if others is not None and others_most != 0:
        more = max(0, least - len(known))
        if known:
            inner = times(f"({SEPARATOR} {others})", more, others_most)
        else:
            left = None if others_most is None else others_most - 1
            inner = f"{others} {times(f'({SEPARATOR} {others})', max(0, more - 1), left)}"
            inner = f"({inner} {BLANK})" if more else f"({inner} {BLANK})?"
            return f'"{opening}" {BLANK} {inner} "{closing}"'
    for number in range(len(known) - 1, -1, -1):
        part = f"{known[number]} {inner}" if number == 0 else f"{SEPARATOR} {known[number]} {inner}"
        if number == 0:
            part += f" {BLANK}"
        inner = part if number < least else f"({part})?"
    return f'"{opening}" {BLANK} {inner} "{closing}"'


def _types(words: Mapping[str, Any], at: str) -> list[str]:
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
            _alone(words, frozenset().union(*BY_TYPE.values()), at)
        raise SchemaError(
            f"{at[:128]} has the type {str(found)[:64]!r}; expected {', '.join(BY_TYPE)}, a list of these, or one of "
            "$ref, enum, const, anyOf and oneOf instead."
        )
    return kinds


def _alone(words: Mapping[str, Any], allowed: frozenset[str] | set[str], at: str) -> None:
    others = [word for word in words if word not in allowed]
    if others:
        raise SchemaError(
            f"{at[:128]} has {', '.join(word[:64] for word in others[:5])}, which is not enforced there. Leave it out."
        )


def _languages(words: Mapping[str, Any], at: str) -> list[Regex]:
    """What the format and the patterns of a text say."""
    found: list[Regex] = []
    name = words.get("format")
    if name is not None and name not in ANY_TEXT:
        if name not in PATTERNS:
            raise SchemaError(
                f"{at[:128]} has the format {str(name)[:64]!r}; expected {', '.join(sorted(PATTERNS))}. Use one of "
                "these, a pattern, or leave it out."
            )
        found.append(format_language(name))
    patterns = [words["pattern"]] if "pattern" in words else []
    others = words.get("allOf", [])
    if not isinstance(others, list):
        raise SchemaError(f"{at[:128]}/allOf is not a list of schemas.")
    for number, each in enumerate(others):  # zod writes several patterns of one text so
        inner = _words(each, f"{at}/allOf/{number}")
        _alone(inner, {"pattern"}, f"{at}/allOf/{number}")
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


def _ordered(words: Mapping[str, Any], low: str, high: str, at: str) -> tuple[int, int | None]:
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


def _items(words: Mapping[str, Any], at: str) -> tuple[list[Any], Any, int, int | None]:
    """The schemas of the first items, that of all others, and the least and most items."""
    first, rest = words.get("prefixItems", []), words.get("items", True)
    if isinstance(rest, list) and "prefixItems" not in words:  # as drafts before 2020-12 write it
        first, rest = rest, words.get("additionalItems", True)
    if not isinstance(first, list):
        raise SchemaError(f"{at[:128]}/prefixItems is not a list of schemas.")
    least, most = _ordered(words, "minItems", "maxItems", at)
    if "minItems" not in words:
        least = len(first) if most is None else min(len(first), most)
    return first, rest, least, most


def _needed(kind: str, words: Mapping[str, Any], at: str) -> list[Any]:
    """The schemas of the values that every value of a type has within it."""
    if kind == "object":
        properties, required = _properties(words, at)
        others = words.get("additionalProperties", words.get("unevaluatedProperties", True))
        return [properties.get(name, others) for name in required]
    if kind == "array":
        first, rest, least, _ = _items(words, at)
        return [*first[:least], *([rest] if least > len(first) else [])]
    return []


def _properties(words: Mapping[str, Any], at: str) -> tuple[dict[str, Any], list[str]]:
    properties, required = words.get("properties", {}), words.get("required", [])
    if not isinstance(properties, dict):
        raise SchemaError(f"{at[:128]}/properties is {str(properties)[:64]!r}; expected an object.")
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise SchemaError(f"{at[:128]}/required is not a list of names.")
    others = others_of(words)
    missing = [name for name in required if name not in properties]
    if missing and is_never(others):
        raise SchemaError(f"{at[:128]}/required has {missing[0][:64]!r}, which properties does not have.")
    if long := [name for name in [*properties, *required] if len(name) > MAX_NAME]:
        raise SchemaError(f"{at[:128]} has the property {long[0][:64]!r}...; expected at most {MAX_NAME} characters.")
    return properties, required


def _number_bounds(words: Mapping[str, Any], at: str, *, whole: bool) -> NumberBounds:
    numbers: dict[str, Decimal] = {}
    for name in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"):
        if name in words:
            value = words[name]
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SchemaError(f"{at[:128]}/{name} is {str(value)[:64]!r}; expected a number.")
            numbers[name] = Decimal(repr(value))
    lows = [(numbers[name], name != "minimum") for name in ("minimum", "exclusiveMinimum") if name in numbers]
    highs = [(numbers[name], name == "maximum") for name in ("maximum", "exclusiveMaximum") if name in numbers]
    known = words.get("format")
    if known is not None and known not in NUMBERS:
        raise SchemaError(f"{at[:128]} has the format {str(known)[:64]!r}; expected {', '.join(NUMBERS)}.")
    least, most = NUMBERS.get(str(known), (None, None))
    lows += [] if least is None else [(Decimal(least), False)]
    highs += [] if most is None else [(Decimal(most), True)]
    low, above = max(lows, default=(None, False))
    high, reached = min(highs, default=(None, True))
    return NumberBounds(whole, low, high, above, not reached, numbers.get("multipleOf"))
