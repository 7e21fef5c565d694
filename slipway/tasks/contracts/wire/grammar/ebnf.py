"""A grammar in xgrammar's EBNF, rule by rule. Pure.

https://xgrammar.mlc.ai/docs, "EBNF grammar". What runtimes read wrongly is not written: `{2,}` (0.1.33), ranges whose
ends have UTF-8 of different first bytes (OpenVINO GenAI 2026.4, 0.1.33), and all ranges beyond ASCII (0.1.25).
"""

import json
from collections.abc import Mapping, Sequence
from enum import Enum

from . import GrammarError
from .automaton import Automaton
from .regular import ANY, Ahead, Chain, Chars, Choice, Range, Ranges, Regex, Repeat, Shared, intersection

MAX_PARTS = 12_000
"""Characters, references and repetitions of a grammar, each of which becomes a state of its compiler."""
RAW: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF))
"""What stands in a JSON string as it is (RFC 8259, section 7)."""
BEYOND_ASCII, LAST_OF_16_BITS = 0x80, 0xFFFF
PLAIN: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7F))
"""The ASCII of it."""
SHORT = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
"""Characters that JSON writes with a backslash."""
BLANK, CHAR, ASCII, VALUE = "blank", "char", "ascii", "value"

ESCAPED = (
    r'"\\" ["\\/bfnrt] | "\\u" ([0-9A-Ca-cEeFf] hex hex hex | [Dd] [0-7] hex hex'
    r' | [Dd] [89ABab] hex hex "\\u" [Dd] [C-Fc-f] hex hex)'
)
COMMON: Mapping[str, str] = {
    BLANK: r'"" | " " | "\n" [ \t]{0,20}',
    ASCII: rf"[ !#-\[\]-\x7f] | {ESCAPED}",
    "hex": "[0-9A-Fa-f]",
    VALUE: 'object | array | string | number | "true" | "false" | "null"',
    "object": '"{" blank (member (blank "," blank member)*)? blank "}"',
    "member": 'string blank ":" blank value',
    "array": '"[" blank (value (blank "," blank value)*)? blank "]"',
    "string": r'"\"" char* "\""',
    "number": '"-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,15})? ([eE] [+\\-]? [0-9]{1,2})?',
}
"""What many grammars have in common: bounded blanks, a character of a JSON string, and any JSON value."""
NEEDS: Mapping[str, Sequence[str]] = {
    ASCII: ["hex"],
    CHAR: ["hex"],
    VALUE: ["object", "array", "string", "number"],
    "object": ["member", BLANK],
    "member": ["string", BLANK, VALUE],
    "array": [BLANK, VALUE],
    "string": [CHAR],
}


class Dialect(Enum):
    """How characters beyond ASCII can be written.

    xgrammar 0.1.25, which TensorRT-LLM 1.2 has, only knows all of them at once, and takes malformed UTF-8 for some.
    What becomes of that has another length, so a text whose characters matter gets ASCII and escapes there.
    """

    RANGES = "ranges"
    ALL_OR_NONE = "all or none"


class Grammar:
    """Rules by name. Whoever adds expressions takes care that they are EBNF."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._rules: dict[str, str] = {}
        self._shared: dict[Shared, str] = {}
        self._parts = 0

    def text(self) -> str:
        """All rules, one a line, the root first."""
        ordered = {"root": self._rules["root"], **self._rules}
        return "\n".join(f"{name} ::= {body}" for name, body in ordered.items())

    def add(self, body: str, name: str | None = None) -> str:
        """A rule of this body; its name."""
        name = name or self.name()
        self._rules[name] = body
        return name

    def name(self) -> str:
        """A name for a rule that follows."""
        name = f"r{len(self._rules)}"
        self._rules[name] = ""
        return name

    def common(self, name: str) -> str:
        """The name of a rule of COMMON, which is added."""
        if name not in self._rules:
            self._rules[name] = COMMON[name] if name != CHAR else self._char()
            for each in NEEDS.get(name, ()):
                self.common(each)
        return name

    def _char(self) -> str:
        if self._dialect is Dialect.ALL_OR_NONE:
            return rf'[^"\\\x00-\x1f] | {ESCAPED}'
        return f"{self._class(RAW)} | {ESCAPED}"

    def spend(self, parts: int) -> None:
        """Take so many parts from those that a grammar may have.

        Raises:
            GrammarError: nothing is left.
        """
        self._parts += parts
        if self._parts > MAX_PARTS:
            raise GrammarError(f"the grammar has more than {MAX_PARTS} parts")

    def regex(self, regex: Regex) -> str:
        """An expression for what a regular language has, as a JSON string writes it."""
        match regex:
            case Chars(ranges):
                self.spend(1)
                char = _single(regex)
                return self._chars(ranges) if char is None else literal(char)
            case Chain(parts):
                return self._chain(parts)
            case Choice(options):
                return "(" + " | ".join(self.regex(each) for each in options) + ")"
            case Repeat(part, least, most):
                before = self._parts
                inner = self.regex(part)
                if not isinstance(part, Chars | Shared):
                    inner = f"({inner})"
                self.spend((self._parts - before) * (max(1, least, most or 0) - 1))
                return times(inner, least, most)
            case Shared(part):
                if regex not in self._shared:
                    self._shared[regex] = self.name()
                    self.add(self.regex(part), self._shared[regex])
                return self._shared[regex]
            case Ahead():
                raise AssertionError("what looks ahead becomes an automaton first")

    def machine(self, automaton: Automaton) -> str:
        """An expression for what an automaton accepts, as a JSON string writes it."""
        names = [self.name() for _ in automaton.moves]
        for name, moves, accepts in zip(names, automaton.moves, automaton.accepts, strict=True):
            number = names.index(name)
            if accepts and moves == {number: ANY.ranges}:
                self.add(f"{self.common(CHAR)}*", name)
                continue
            options = [f"{self.regex(Chars(ranges))} {names[to]}" for to, ranges in moves.items()]
            self.add(" | ".join(['""'] * accepts + options), name)
        return names[0]

    def _chain(self, parts: Sequence[Regex]) -> str:
        written: list[str] = []
        plain = ""
        for part in parts:
            char = _single(part)
            if char is not None:
                self.spend(1)
                plain += char
                continue
            if plain:
                written.append(literal(plain))
            plain = ""
            written.append(self.regex(part))
        if plain or not written:
            written.append(literal(plain))
        return " ".join(written)

    def _chars(self, ranges: Ranges) -> str:
        exact = self._dialect is Dialect.RANGES
        if ranges == ANY.ranges:
            return self.common(CHAR if exact else ASCII)
        options = []
        if raw := intersection(ranges, RAW if exact else PLAIN):
            options.append(self._class(raw))
        for char, short in SHORT.items():
            if any(low <= ord(char) <= high for low, high in ranges):
                options.append(literal("\\" + short))
        if not options:
            raise GrammarError("only a control character fits")
        return options[0] if len(options) == 1 else "(" + " | ".join(options) + ")"

    def _class(self, ranges: Ranges) -> str:
        """A set of ASCII, and one for each run of characters that have the same first byte or all that follow it."""
        pieces = [piece for low, high in ranges for piece in utf8_pieces(low, high)]
        sets = ["".join(_span(low, high) for low, high in pieces if high < BEYOND_ASCII)]
        sets += [_span(low, high) for low, high in pieces if low >= BEYOND_ASCII]
        found = [f"[{each}]" for each in sets if each]
        return found[0] if len(found) == 1 else "(" + " | ".join(found) + ")"


def utf8_pieces(low: int, high: int) -> list[Range]:
    """A range in pieces, in each of which every byte of UTF-8 has a range of its own.

    The algorithm of Lucene's UTF32ToUTF8 and of RE2's compiler.
    """
    for limit in (0x7F, 0x7FF, LAST_OF_16_BITS):
        if low <= limit < high:
            return utf8_pieces(low, limit) + utf8_pieces(limit + 1, high)
    if high < BEYOND_ASCII:
        return [(low, high)]
    for bits in (6, 12, 18):
        mask = (1 << bits) - 1
        if low & ~mask != high & ~mask:
            if low & mask:
                return utf8_pieces(low, low | mask) + utf8_pieces((low | mask) + 1, high)
            if high & mask != mask:
                return utf8_pieces(low, (high & ~mask) - 1) + utf8_pieces(high & ~mask, high)
    return [(low, high)]


def literal(text: str) -> str:
    """An expression for exactly this text."""
    return '"' + "".join(_escaped(char, '"\\') for char in text) + '"'


def json_text(value: str) -> str:
    """What a JSON string of this text has between its quotes."""
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _single(part: Regex) -> str | None:
    """The JSON of a part that is one character; None for all others."""
    if isinstance(part, Chars) and len(part.ranges) == 1 and part.ranges[0][0] == part.ranges[0][1]:
        return json_text(chr(part.ranges[0][0]))
    return None


def times(inner: str, least: int, most: int | None) -> str:
    """An expression for another one, which is one term, from `least` to `most` times."""
    if (least, most) == (0, 1):
        return f"{inner}?"
    if least == most:
        return inner if least == 1 else f"{inner}{{{least}}}"
    if most is None:
        return f"{inner}*" if least == 0 else f"{inner}+" if least == 1 else f"{inner}{{{least}}} {inner}*"
    return f"{inner}{{{least},{most}}}"


def _span(low: int, high: int) -> str:
    ends = [_escaped(chr(code), "[]^-\\") for code in (low, high)]
    return ends[0] if low == high else "-".join(ends)


def _escaped(char: str, special: str) -> str:
    if char in special:
        return "\\" + char
    code = ord(char)
    if char.isascii() and char.isprintable():
        return char
    return f"\\u{code:04x}" if code <= LAST_OF_16_BITS else f"\\U{code:08x}"
