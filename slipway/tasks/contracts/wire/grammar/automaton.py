"""Deterministic automata of texts that several regular languages have in common, by derivatives.

Brzozowski's derivatives: Owens, Reppy and Turon, "Regular-expression derivatives
re-examined", 2009. Complements and intersections need nothing further, so a lookahead is one of these.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import GrammarError
from .regular import ANY, LAST, Ahead, Chain, Chars, Choice, Range, Ranges, Regex, Repeat, Shared, complement, union

MAX_STATES = 1024
MAX_TERMS = 20_000
"""Expressions that are made on the way: states are known only when all of them have been derived."""

ALL: Ranges = ANY.ranges


@dataclass(frozen=True)
class Automaton:
    """States from 0, the first one, on: the characters that lead to another state, and whether a text may end."""

    moves: tuple[Mapping[int, Ranges], ...]
    accepts: tuple[bool, ...]

    def matches(self, text: str) -> bool:
        """Whether the text is in the language."""
        state = 0
        for char in map(ord, text):
            found = [to for to, ranges in self.moves[state].items() if any(low <= char <= high for low, high in ranges)]
            if not found:
                return False
            state = found[0]
        return self.accepts[state]


def common(languages: Sequence[Regex], excluded: Sequence[Regex] = ()) -> Automaton:
    """The texts that are in all languages and in none of the excluded ones.

    Raises:
        GrammarError: there is no such text, or the automaton is too large.
    """
    terms = _Terms()
    parts = [terms.then(each, terms.empty) for each in languages]
    parts += [terms.without(terms.then(each, terms.empty)) for each in excluded]
    classes = terms.classes()
    automaton = _useful(*_states(terms, terms.both(parts), [ranges[0][0] for ranges in classes]), classes)
    if not automaton.accepts:
        raise GrammarError("no text fits all of it")
    return automaton


def _states(terms: "_Terms", start: int, characters: Sequence[int]) -> tuple[list[list[int]], list[bool]]:
    """Number the states: where each character leads from each, and whether a text may end there."""
    numbers, order = {start: 0}, [start]
    table: list[list[int]] = []
    for term in order:
        row = []
        for char in characters:
            after = terms.derive(term, char)
            if after not in numbers:
                numbers[after] = len(order)
                order.append(after)
                if len(order) > MAX_STATES:
                    raise GrammarError(f"its automaton has more than {MAX_STATES} states")
            row.append(numbers[after])
        table.append(row)
    return table, [terms.nullable(term) for term in order]


def _useful(table: list[list[int]], accepts: list[bool], classes: Sequence[Ranges]) -> Automaton:
    """Without the states from which no text ends, and with those that are the same joined."""
    live = _live(table, accepts)
    if 0 not in live:
        return Automaton((), ())
    block = _blocks(table, accepts)
    first: dict[int, int] = {}
    for state in sorted(live):
        first.setdefault(block[state], state)
    numbers = {name: number for number, name in enumerate(first)}
    moves = []
    for state in first.values():
        leaving: dict[int, list[Ranges]] = {}
        for to, ranges in zip(table[state], classes, strict=True):
            if to in live:
                leaving.setdefault(numbers[block[to]], []).append(ranges)
        moves.append({to: union(each for ranges in found for each in ranges) for to, found in leaving.items()})
    return Automaton(tuple(moves), tuple(accepts[state] for state in first.values()))


def _live(table: list[list[int]], accepts: list[bool]) -> set[int]:
    before: dict[int, set[int]] = {}
    for state, row in enumerate(table):
        for to in row:
            before.setdefault(to, set()).add(state)
    live = {state for state, accepted in enumerate(accepts) if accepted}
    waiting = list(live)
    while waiting:
        new = before.get(waiting.pop(), set()) - live
        live |= new
        waiting += new
    return live


def _blocks(table: list[list[int]], accepts: list[bool]) -> list[int]:
    """The block of each state, within which nothing tells states apart: Moore's algorithm."""
    block = [int(accepted) for accepted in accepts]
    while True:
        numbers: dict[tuple[int, ...], int] = {}
        keys = [(block[state], *(block[to] for to in row)) for state, row in enumerate(table)]
        refined = [numbers.setdefault(key, len(numbers)) for key in keys]
        if len(numbers) == len(set(block)):
            return refined
        block = refined


class _Terms:
    """Extended regular expressions, each of them once and known by its number."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], int] = {}
        self._terms: list[tuple[Any, ...]] = []
        self.none, self.empty = self._term("chars", ()), self._term("empty")
        self._any = self._term("chars", ALL)
        self.all = self._term("repeat", self._any, 0, None)
        self.nullable = functools.cache(self._nullable)
        self.derive = functools.cache(self._derive)

    def then(self, regex: Regex, rest: int) -> int:  # noqa: PLR0911 - one for each kind of expression
        """A regular expression, and after it the rest, which is everything up to the end of the text."""
        match regex:
            case Chars(ranges):
                return self._chain(self._term("chars", ranges), rest)
            case Chain(parts):
                return functools.reduce(lambda after, part: self.then(part, after), reversed(parts), rest)
            case Choice(options):
                return self.either([self.then(each, rest) for each in options])
            case Repeat(part, 0, 1):
                return self.either([self.then(part, rest), rest])
            case Repeat(part, least, most):
                return self._chain(self._repeat(self.then(part, self.empty), least, most), rest)
            case Shared(part):
                return self.then(part, rest)
            case Ahead(part, wanted):
                begins = self.then(part, self.all)
                return self.both([begins if wanted else self.without(begins), rest])

    def both(self, terms: Sequence[int]) -> int:
        """What all of them have in common."""
        flat = sorted(self._flat("both", terms) - {self.all})
        if self.none in flat:
            return self.none
        return self.all if not flat else flat[0] if len(flat) == 1 else self._term("both", *flat)

    def either(self, terms: Sequence[int]) -> int:
        """What any of them has."""
        flat = sorted(self._flat("either", terms) - {self.none})
        if self.all in flat:
            return self.all
        return self.none if not flat else flat[0] if len(flat) == 1 else self._term("either", *flat)

    def without(self, term: int) -> int:
        """All other texts."""
        match self._terms[term]:
            case ("without", int(inner)):
                return inner
            case _ if term == self.none:
                return self.all
            case _ if term == self.all:
                return self.none
        return self._term("without", term)

    def _flat(self, tag: str, terms: Sequence[int]) -> set[int]:
        flat: set[int] = set()
        for term in terms:
            kind, *inner = self._terms[term]
            flat.update(inner if kind == tag else [term])
        return flat

    def _chain(self, first: int, rest: int) -> int:
        if self.none in (first, rest):
            return self.none
        if first == self.empty:
            return rest
        if rest == self.empty:
            return first
        kind, *inner = self._terms[first]
        if kind == "chain":
            return self._chain(inner[0], self._chain(inner[1], rest))
        return self._term("chain", first, rest)

    def _repeat(self, part: int, least: int, most: int | None) -> int:
        if most == 0 or part == self.empty or (part == self.none and least == 0):
            return self.empty
        if part == self.none:
            return self.none
        return part if (least, most) == (1, 1) else self._term("repeat", part, least, most)

    def _nullable(self, term: int) -> bool:  # noqa: PLR0911 - as then
        match self._terms[term]:
            case ("chars", _):
                return False
            case ("empty",):
                return True
            case ("chain", int(first), int(rest)):
                return self.nullable(first) and self.nullable(rest)
            case ("either", *inner):
                return any(map(self.nullable, inner))
            case ("both", *inner):
                return all(map(self.nullable, inner))
            case ("repeat", int(part), int(least), _):
                return least == 0 or self.nullable(part)
            case ("without", int(inner)):
                return not self.nullable(inner)
            case _:
                raise AssertionError(self._terms[term])

    def _derive(self, term: int, char: int) -> int:  # noqa: PLR0911 - as then
        """What may follow a character."""
        match self._terms[term]:
            case ("chars", tuple(ranges)):
                return self.empty if any(low <= char <= high for low, high in ranges) else self.none
            case ("empty",):
                return self.none
            case ("chain", int(first), int(rest)):
                after = self._chain(self.derive(first, char), rest)
                return self.either([after, self.derive(rest, char)]) if self.nullable(first) else after
            case ("either", *inner):
                return self.either([self.derive(each, char) for each in inner])
            case ("both", *inner):
                return self.both([self.derive(each, char) for each in inner])
            case ("repeat", int(part), int(least), most):
                fewer = None if most is None else int(most) - 1
                return self._chain(self.derive(part, char), self._repeat(part, max(0, least - 1), fewer))
            case ("without", int(inner)):
                return self.without(self.derive(inner, char))
            case _:
                raise AssertionError(self._terms[term])

    def classes(self) -> list[Ranges]:
        """All characters in groups, of which no term tells two characters apart."""
        known = {each[1] for each in self._terms if each[0] == "chars"}
        edges = sorted({edge for ranges in known for low, high in ranges for edge in (low, high + 1)} | {0, LAST + 1})
        groups: dict[tuple[bool, ...], list[Range]] = {}
        for low, after in itertools.pairwise(edges):
            within = tuple(any(first <= low <= last for first, last in ranges) for ranges in known)
            groups.setdefault(within, []).append((low, after - 1))
        return [ranges for ranges in map(complement, map(complement, groups.values())) if ranges]

    def _term(self, *fields: object) -> int:
        number = self._known.setdefault(fields, len(self._terms))
        if number == len(self._terms):
            if number >= MAX_TERMS:
                raise GrammarError("it is too large")
            self._terms.append(fields)
        return number
