r"""Patterns of JSON Schema, which are ECMAScript's regular expressions, as regular languages. Pure.

Not taken: references to groups, lookbehind, word boundaries, properties of Unicode and what is not a regular language.
Validators disagree about \w, \d and \s beyond ASCII (ECMA-262 22.2.2.9, Python's re), so a text that is written fits
both readings.
"""

import re
from dataclasses import dataclass

from . import GrammarError
from .regular import (
    ANY,
    EMPTY,
    LAST,
    SURROGATES,
    Ahead,
    Chain,
    Chars,
    Choice,
    Range,
    Ranges,
    Regex,
    Repeat,
    chain,
    choice,
    complement,
    union,
)

MAX_CHARS = 1024
MAX_DEPTH = 24
MAX_REPEAT = 1024

NEVER, ANYTHING = Chars(()), Repeat(ANY, 0, None)
END = Ahead(ANY, wanted=False)
NAMED = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d+)(,(\d*))?\})\??")
SIMPLE: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def _codes(characters: str) -> Ranges:
    return union((ord(char), ord(char)) for char in characters)


@dataclass(frozen=True)
class _Class:
    r"""What `\d` and its like stand for: by every reading, and by any of them."""

    surely: Ranges
    possibly: Ranges


DIGITS: Ranges = ((ord("0"), ord("9")),)
WORD: Ranges = union([*DIGITS, (ord("A"), ord("Z")), (ord("a"), ord("z")), (ord("_"), ord("_"))])
NO_DIGITS_TO = 0x65F
"""The first decimal digit of another script is U+0660."""
SPACES = union([*_codes(" \t\n\v\f\r\u00a0\u1680\u2028\u2029\u202f\u205f\u3000"), (0x2000, 0x200A)])
MAYBE_SPACES = union([*SPACES, (0x1C, 0x1F), (0x85, 0x85), (0xFEFF, 0xFEFF)])
CLASSES = {
    "d": _Class(DIGITS, union([*DIGITS, (NO_DIGITS_TO + 1, LAST)])),
    "w": _Class(WORD, union([*WORD, (0x80, LAST)])),
    "s": _Class(SPACES, MAYBE_SPACES),
}
CLASSES |= {
    name.upper(): _Class(complement(each.possibly), complement(each.surely)) for name, each in tuple(CLASSES.items())
}


def read_pattern(pattern: str) -> Regex:
    """The texts in which a pattern is found, which is anywhere unless `^` and `$` say otherwise.

    Raises:
        GrammarError: it is not a regular expression, or not one that is taken.
    """
    if len(pattern) > MAX_CHARS:
        raise GrammarError(f"it has more than {MAX_CHARS} characters")
    return choice([_whole(branch) for branch in _Reader(pattern).read()])


START = Ahead(NEVER, wanted=True)
"""A mark that reading leaves behind, which _whole takes out."""


def _whole(branch: Regex) -> Regex:
    """A branch of a pattern, and what may stand before and after it."""
    parts = list(branch.parts) if isinstance(branch, Chain) else [branch]
    anchored = bool(parts) and parts[0] == START
    after: list[Regex] = [ANYTHING]
    if parts and parts[-1] == END:
        parts, after = parts[:-1], []
    if anchored:
        return chain(*parts[1:], *after)
    found = chain(*parts, *after)
    if not _has_start(found):
        return chain(ANYTHING, found)
    elsewhere = chain(ANY, ANYTHING, _at_start(found, NEVER))
    return choice([_at_start(found, EMPTY), elsewhere])


def _has_start(regex: Regex) -> bool:
    match regex:
        case Chain(parts) | Choice(parts):
            return any(map(_has_start, parts))
        case Repeat(part):
            return _has_start(part)
        case _:
            return regex == START


def _at_start(regex: Regex, start: Regex) -> Regex:
    """With something else where `^` stands."""
    match regex:
        case Chain(parts):
            return chain(*(_at_start(part, start) for part in parts))
        case Choice(options):
            return choice([_at_start(option, start) for option in options])
        case _:
            return start if regex == START else regex


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at, self._depth = pattern, 0, 0

    def read(self) -> tuple[Regex, ...]:
        """The branches of the whole pattern."""
        regex = self._choice(first=True)
        if self._at < len(self._pattern):
            raise GrammarError("it has ) without (")
        return regex.options if isinstance(regex, Choice) else (regex,)

    def _choice(self, *, first: bool) -> Regex:
        """`first`: nothing stands before it, so `^` may."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise GrammarError(f"it is more than {MAX_DEPTH} groups deep")
        options = [self._chain(first=first)]
        while self._take("|"):
            options.append(self._chain(first=first))
        self._depth -= 1
        return choice(options)

    def _chain(self, *, first: bool) -> Regex:
        parts: list[Regex] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            start = first and all(isinstance(part, Ahead) for part in parts)
            part = self._quantified(self._atom(first=start))
            parts.append(part)
        return chain(*parts)

    def _quantified(self, part: Regex) -> Regex:
        found = QUANTIFIER.match(self._pattern, self._at)
        if found is None:
            return part
        self._at = found.end()
        least, most = SIMPLE.get(found[0][0], (int(found[1] or 0), int(found[1] or 0)))
        if found[2]:
            most = int(found[3]) if found[3] else None
        if (most is not None and most < least) or max(least, most or 0) > MAX_REPEAT:
            raise GrammarError(f"it has {found[0]}; expected at most {MAX_REPEAT} times, the smaller number first")
        inner = [part]
        while inner:  # what looks ahead sees all that follows, which has no end in a repetition
            match inner.pop():
                case Ahead():
                    if (least, most) != (0, 1):
                        raise GrammarError("it repeats an anchor or a lookahead")
                case Chain(parts) | Choice(parts):
                    inner += parts
                case Repeat(each):
                    inner.append(each)
                case _:
                    pass
        if _has_start(part):
            raise GrammarError("it repeats an anchor")
        return Repeat(part, least, most)

    def _atom(self, *, first: bool) -> Regex:  # noqa: PLR0911 - one for each kind of atom
        char = self._next()
        if char == "^":
            if not first:
                raise GrammarError("it has ^ within")
            return START
        if char == "$":
            return END
        if char == "(":
            return self._group(first=first)
        if char == "[":
            return self._set()
        if char == ".":
            return Chars(complement(LINE_ENDS))
        if char == "\\":
            found = self._escape()
            return Chars(found.surely if isinstance(found, _Class) else ((found, found),))
        if char in "*+?{":
            raise GrammarError(f"it has {char} without anything to repeat")
        return Chars(((ord(char), ord(char)),))

    def _group(self, *, first: bool) -> Regex:
        ahead: bool | None = None
        if self._take("?"):
            if self._take("=") or self._take("!"):
                ahead = self._pattern[self._at - 1] == "="
            elif not self._take(":"):
                name = re.compile(r"P?<[A-Za-z_$][\w$]*>").match(self._pattern, self._at)
                if name is None:
                    raise GrammarError("it has a group of a kind that is not taken")
                self._at = name.end()
        inner = self._choice(first=first and ahead is None)
        if not self._take(")"):
            raise GrammarError("it has ( without )")
        return inner if ahead is None else Ahead(inner, ahead)

    def _set(self) -> Regex:
        negated = self._take("^")
        ranges: list[Range] = []
        while not self._take("]"):
            low = self._member()
            if self._pattern.startswith("-", self._at) and not self._pattern.startswith("-]", self._at):
                self._at += 1
                high = self._member()
                if isinstance(low, _Class) or isinstance(high, _Class):
                    both = (low, (ord("-"), ord("-")), high)
                    ranges += [each for one in both for each in self._ranges(one, negated=negated)]
                elif low > high:
                    raise GrammarError(f"it has a range from U+{low:04X} down to U+{high:04X}")
                else:
                    ranges.append((low, high))
            else:
                ranges += self._ranges(low, negated=negated)
        return Chars(complement(ranges) if negated else complement(complement(ranges)))

    def _ranges(self, member: "int | Range | _Class", *, negated: bool) -> Ranges:
        if isinstance(member, _Class):
            return member.possibly if negated else member.surely
        return (member,) if isinstance(member, tuple) else ((member, member),)

    def _member(self) -> int | _Class:
        char = self._next()
        if char != "\\":
            return ord(char)
        if self._take("b"):
            return 8
        if self._take("-"):
            return ord("-")
        return self._escape()

    def _escape(self) -> int | _Class:
        char = self._next()
        if char in CLASSES:
            return CLASSES[char]
        if char in NAMED:
            return NAMED[char]
        for form in {"x": (r"([0-9a-fA-F]{2})",), "u": (r"([0-9a-fA-F]{4})", r"\{([0-9a-fA-F]{1,6})\}")}.get(char, ()):
            if found := re.compile(form).match(self._pattern, self._at):
                self._at = found.end()
                return self._code(int(found[1], 16))
        if char.isalnum() or char == "_":
            raise GrammarError(f"it has \\{char}, which is not taken")
        return ord(char)

    def _code(self, code: int) -> int:
        if code > LAST or SURROGATES[0] <= code <= SURROGATES[1]:
            raise GrammarError(f"it names U+{code:04X}, which is not a character")
        return code

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise GrammarError("it ends too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def _take(self, token: str) -> bool:
        found = self._pattern.startswith(token, self._at)
        self._at += found * len(token)
        return found
