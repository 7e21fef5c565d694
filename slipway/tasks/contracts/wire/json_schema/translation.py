"""One whole schema on its way to a grammar: references, choices, and the types of a value."""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ..grammar.disjoint import all_apart, is_never, objects_apart, telling_property, types_apart
from ..grammar.ebnf import BLANK, VALUE, Dialect, Grammar, literal
from .arrays import Arrays
from .document import Document
from .ending import check_ends
from .expressions import either
from .keywords import BY_TYPE, CHOICES, check_alone, is_several, types_of, words_of
from .limits import MAX_COMPARED, SchemaError
from .objects import Objects
from .plain_form import Dependency
from .values import Values


class Translation:
    """Translates a schema; used once."""

    def __init__(self, root: Mapping[str, Any], dialect: Dialect) -> None:
        self._document, self._grammar = Document(root), Grammar(dialect)
        self._values = Values(self._grammar)
        self._arrays = Arrays(self._document, self._values, self._value)
        self._objects = Objects(self._document, self._values, self._value)
        self._rules: dict[tuple[str, str], str] = {("#", ""): "root"}
        self._waiting: list[tuple[str, str]] = [("#", "")]
        self._made_of: dict[str, set[str]] = {}
        """Places by the places that they are as a whole, before any property or item."""

    def grammar(self) -> str:
        """The text of all rules."""
        self._grammar.common(BLANK)
        while self._waiting:
            place, required = self._waiting.pop()
            self._made_of.setdefault(place, set())
            body = self._value(self._document.at(place), place, 0, whole=place, required=required)
            self._grammar.add(body, self._rules[place, required])
        try:
            TopologicalSorter(self._made_of).prepare()
        except CycleError as error:
            raise SchemaError(f"{error.args[1][0][:128]} refers to itself without end.") from error
        check_ends(self._document, dict.fromkeys(place for place, _ in self._rules))
        return self._grammar.text()

    def _value(self, schema: Any, at: str, depth: int, *, whole: str | None = None, required: str = "") -> str:
        """An expression for the values of a schema.

        Args:
            schema: what its values obey.
            at: where it stands.
            depth: schemas around it.
            whole: the rule whose value it is as a whole.
            required: a property that it must have, whatever it says of it.
        """
        self._document.spend(at, depth)
        words = words_of(schema, at)
        if not words:
            return self._grammar.common(VALUE)
        if is_several(words):
            return self._value(self._document.merged(words, at), at, depth + 1, whole=whole, required=required)
        if "$ref" in words:
            check_alone(words, {"$ref"}, at)
            return self._reference(words["$ref"], at, whole, required)
        if "enum" in words or "const" in words:
            return self._values.enum(words, at)
        for keyword in CHOICES:
            if keyword in words:
                return self._combined(keyword, words, at, depth, whole)
        return self._typed(words, at, depth, required)

    def _reference(self, reference: Any, at: str, whole: str | None, required: str = "") -> str:
        target = self._document.place(reference)
        if target is None or self._document.at(target) is None:
            raise SchemaError(
                f"{at[:128]} has $ref {str(reference)[:64]!r}; expected #, or #/$defs/ and a name that is there."
            )
        if whole is not None:
            self._made_of.setdefault(whole, set()).add(target)
        if (target, required) not in self._rules:
            self._rules[target, required] = self._grammar.name()
            self._waiting.append((target, required))
        return self._rules[target, required]

    def _combined(self, keyword: str, words: Mapping[str, Any], at: str, depth: int, whole: str | None) -> str:
        check_alone(words, {keyword}, at)
        options = words[keyword]
        if not isinstance(options, list) or not options:
            raise SchemaError(f"{at[:128]}/{keyword} is not a list of schemas.")
        required = self._discriminator(options, at) if keyword == "oneOf" else ""
        written = []
        for number, each in enumerate(options):
            if not is_never(each):
                place = at if isinstance(options, Dependency) else f"{at}/{keyword}/{number}"
                written.append(self._value(each, place, depth + 1, whole=whole, required=required))
        if not written:
            raise SchemaError(f"{at[:128]}/{keyword} allows nothing.")
        return either(written)

    def _discriminator(self, options: Sequence[Any], at: str) -> str:
        """The property that tells those options of a oneOf apart that are objects; empty where nothing has to.

        Raises:
            SchemaError: an answer to one option might obey another one.
        """

        def resolve(schema: Any) -> Mapping[str, Any]:
            return self._document.single(schema, at)

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
        kinds = types_of(words, at)
        check_alone(words, frozenset({"type"}).union(*(BY_TYPE[kind] for kind in kinds)), at)
        written = [kind for kind in kinds if kind != "integer" or "number" not in kinds]
        return either([self._kind(kind, words, at, depth, required) for kind in written])

    def _kind(self, kind: str, words: Mapping[str, Any], at: str, depth: int, required: str) -> str:
        if kind == "object":
            return self._objects.expression(words, at, depth, required)
        if kind == "array":
            return self._arrays.expression(words, at, depth)
        if kind == "string":
            return self._values.string(words, at)
        if kind in ("integer", "number"):
            return self._values.number(words, at, whole=kind == "integer")
        return literal("null") if kind == "null" else either([literal("true"), literal("false")])
