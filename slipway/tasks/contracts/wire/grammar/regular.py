"""Regular languages over the characters of a text, as trees. Pure."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import GrammarError

Range = tuple[int, int]
Ranges = tuple[Range, ...]
"""Code points from one to another, both included; sorted, and none touches the next."""

MAX_BRANCHES = 64
LAST = 0x10FFFF
SURROGATES: Range = (0xD800, 0xDFFF)


@dataclass(frozen=True)
class Chars:
    """One character out of some; none at all where `ranges` is empty."""

    ranges: Ranges


@dataclass(frozen=True)
class Chain:
    """Parts that follow one another; the empty text where there are none."""

    parts: tuple["Regex", ...]


@dataclass(frozen=True)
class Choice:
    """Any of its options, of which there is at least one."""

    options: tuple["Regex", ...]


@dataclass(frozen=True)
class Repeat:
    """A part from `least` to `most` times; `most` is None where nothing limits it."""

    part: "Regex"
    least: int
    most: int | None


@dataclass(frozen=True)
class Ahead:
    """The rest of the text, up to its end, does or does not begin with a part; itself it is empty."""

    part: "Regex"
    wanted: bool


@dataclass(frozen=True, eq=False)
class Shared:
    """A part that others have in common: it is written once."""

    part: "Regex"


Regex = Chars | Chain | Choice | Repeat | Ahead | Shared

EMPTY = Chain(())


def union(ranges: Iterable[Range]) -> Ranges:
    """All of these code points."""
    joined: list[Range] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(ranges: Iterable[Range]) -> Ranges:
    """All other characters; halves of surrogate pairs are none."""
    taken = union([*ranges, SURROGATES])
    edges = [-1, *itertools.chain.from_iterable(taken), LAST + 1]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple((before + 1, after - 1) for before, after in pairs if before + 1 < after)


def intersection(one: Ranges, other: Ranges) -> Ranges:
    """The characters of both."""
    return complement(union([*complement(one), *complement(other)]))


ANY = Chars(complement([]))
DIGIT = Chars(((ord("0"), ord("9")),))


def text(value: str) -> Chain:
    """Exactly this text."""
    return Chain(tuple(Chars(((ord(char), ord(char)),)) for char in value))


def one_of(values: Iterable[str]) -> Regex:
    """One of these texts. No two options of a choice begin alike: xgrammar takes 1.275 for one of 1, 1.25, 1.5, 1.75.

    Raises:
        GrammarError: too many of them begin with one another.
    """
    return _one_of(sorted(set(values)), 0, 0)


def _one_of(values: Sequence[str], start: int, depth: int) -> Regex:
    if depth > MAX_BRANCHES:
        raise GrammarError(f"more than {MAX_BRANCHES} values begin with one another")
    if len(values) == 1:
        return text(values[0][start:])
    options: list[Regex] = [EMPTY] if len(values[0]) == start else []
    longer = values[len(options) :]
    for _, alike in itertools.groupby(longer, key=lambda value: value[start]):
        group = list(alike)
        end = start + 1
        while len(group[0]) > end and group[0][:end] == group[-1][:end] and group[0][end] == group[-1][end : end + 1]:
            end += 1
        options.append(chain(text(group[0][start:end]), _one_of(group, end, depth + 1)))
    return choice(options)


def chain(*parts: Regex) -> Regex:
    """Parts one after another."""
    flat = [each for part in parts for each in (part.parts if isinstance(part, Chain) else (part,))]
    return flat[0] if len(flat) == 1 else Chain(tuple(flat))


def choice(options: Sequence[Regex]) -> Regex:
    """One of the options, each named once."""
    distinct = tuple(dict.fromkeys(options))
    return distinct[0] if len(distinct) == 1 else Choice(distinct)


def optional(part: Regex) -> Regex:
    """A part or nothing."""
    return Repeat(part, 0, 1)
