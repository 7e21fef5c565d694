"""Expressions for objects, with the properties in the order of the schema."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..grammar.disjoint import is_never, others_of
from ..grammar.ebnf import BLANK, literal
from .document import Document
from .expressions import SEPARATOR, bracketed, either, quoted
from .keywords import bounds_of, properties_of
from .limits import SchemaError
from .names import Names
from .values import Values


class Objects:
    """Writes objects into a grammar. The arguments are those of Arrays."""

    def __init__(self, document: Document, values: Values, value: Callable[[Any, str, int], str]) -> None:
        self._document, self._values, self._value = document, values, value

    def expression(self, words: Mapping[str, Any], at: str, depth: int, must: str) -> str:
        """An expression for the objects of a schema with these keywords; each has the property `must`, if not empty."""
        properties, required = properties_of(words, at)
        others = others_of(words)
        names = [*properties, *(name for name in required if name not in properties)]
        keys = Names(
            self._document.resolved(words.get("propertyNames", True), f"{at}/propertyNames"), f"{at}/propertyNames"
        )
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
            written = quoted(name)
            self._values.spend(len(written), at)
            members.append((f'{literal(written)} {BLANK} ":" {BLANK} {value}', needed))
        extra = None if is_never(others) else self._extra(others, keys, names, at, depth)
        return self._members(members, extra, words, at)

    def _extra(self, schema: Any, keys: Names, names: Sequence[str], at: str, depth: int) -> str | None:
        """A property that the schema does not name; None where no name is left for one."""
        if keys.listed is not None:
            left = [name for name in keys.listed if name not in names]
            if not left:
                return None
            key = self._values.listed(left, f"{at}/propertyNames")
        else:
            inner = self._values.texts(keys.languages, keys.least, keys.most, f"{at}/propertyNames", names)
            key = rf'"\"" {inner} "\""'
        value = self._value(schema, f"{at}/additionalProperties", depth + 1)
        return self._values.grammar.add(f'{key} {BLANK} ":" {BLANK} {value}')

    def _members(
        self, members: Sequence[tuple[str, bool]], extra: str | None, words: Mapping[str, Any], at: str
    ) -> str:
        least, most = bounds_of(words, "minProperties", "maxProperties", at)
        if least <= sum(needed for _, needed in members):
            least = 0
        if most is not None and extra is None and len(members) <= most:
            most = None
        if (least, most) != (0, None):
            if members or least > 1:
                raise SchemaError(
                    f"{at[:128]} has minProperties or maxProperties, which are enforced for objects that name no "
                    "properties, and with minProperties of at most 1. Leave it out."
                )
            if extra is None:
                if least:
                    raise SchemaError(f"{at[:128]}: minProperties is {least}, but no property is allowed.")
                return bracketed("{", [], "}")
            self._values.repeat(most or 1, at)
            return bracketed("{", [], "}", least=least, others=extra, others_most=most)
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
            tail = self._values.grammar.add(f"({SEPARATOR} {member})? {tail}")
        inner = f"({either(options)} {BLANK})?" if options else ""
        return f'"{{" {BLANK} {inner} "}}"'
