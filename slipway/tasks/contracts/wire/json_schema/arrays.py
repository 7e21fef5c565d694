"""Expressions for arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..grammar.disjoint import distinct, is_never
from ..grammar.ebnf import BLANK
from .counting import values_of
from .document import Document
from .expressions import bracketed
from .keywords import items_of
from .limits import MAX_REPEATS, SchemaError
from .values import Values


class Arrays:
    """Writes arrays into a grammar.

    Args:
        document: the whole schema.
        values: writes what the arrays list.
        value: an expression for the values of a schema, given its place and the number of schemas around it.
    """

    def __init__(self, document: Document, values: Values, value: Callable[[Any, str, int], str]) -> None:
        self._document, self._values, self._value = document, values, value

    def expression(self, words: Mapping[str, Any], at: str, depth: int) -> str:
        """An expression for the arrays of a schema with these keywords at `at`, with `depth` schemas around it."""
        first, rest, least, most = items_of(words, at)
        if words.get("uniqueItems", False) is not False and (most is None or most > 1):
            return self._unique(words, at)
        here = [self._value(each, f"{at}/prefixItems/{number}", depth + 1) for number, each in enumerate(first)]
        others = None
        if not is_never(rest) and (most is None or most > len(first)):
            others = self._values.grammar.add(self._value(rest, f"{at}/items", depth + 1))
        more = others is not None
        if least > len(first) and not more:
            raise SchemaError(f"{at[:128]}: minItems is {least}; there are {len(first)} prefixItems and no others.")
        self._values.repeat(max(least, most or 0), at)
        known = here[: len(here) if most is None else most]
        if others is None:
            return bracketed("[", known, "]", least=min(least, len(known)))
        left = None if most is None else most - len(known)
        return bracketed("[", known, "]", least=least, others=others, others_most=left)

    def _unique(self, words: Mapping[str, Any], at: str) -> str:
        """An array of different ones of some values, in their order: no grammar remembers which were there."""
        first, rest, least, most = items_of(words, at)
        listed = [] if first else values_of(rest, self._document, f"{at}/items") or []
        if words["uniqueItems"] is not True or not 0 < len(listed) <= MAX_REPEATS:
            raise SchemaError(
                f"{at[:128]} has uniqueItems, which is enforced for items of at most {MAX_REPEATS} values, such as an "
                "enum or whole numbers within bounds, or with maxItems of at most 1. Name the values, or leave it out."
            )
        self._value(rest, f"{at}/items", 0)
        values = distinct(listed)
        most = len(values) if most is None else min(most, len(values))
        if least > most:
            raise SchemaError(f"{at[:128]}: minItems is {least}; there are {len(values)} different values.")
        self._values.spend(4 * len(values) * most, at)
        items = [self._values.grammar.add(self._values.listed([each], at)) for each in values]
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
            rules[len(items), count] = self._values.grammar.add(" | ".join(options))
        return rules[len(items), count]
