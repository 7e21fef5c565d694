"""The one reader of JSON that a stranger wrote: within bounds, or refused before anybody works with it. Pure.

It reads requests (OpenAI's bodies, and the messages, tools, schemas and arguments within them and in Triton's inputs),
documents of the object store and answers of servers. What comes out is finite, shallow and small enough to be walked,
its names are unique, and every text in it can be written as UTF-8. The models of Triton share this file by a link, so
it imports nothing of Slipway.
"""

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_DIGITS = 400
"""The longest number, as it is written: more than any double needs, and below Python's own limit of 4,300."""
MAX_INTEGER = 2**64
"""What a program reads into 64 bits. Beyond it, runtimes disagree about whole numbers."""

MARKS = ",:[{"
"""Each of them begins a value or follows a name, outside of texts and but for lists and objects without members."""
WITHOUT_MARKS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|\[\s*\]|\{\s*\}', re.DOTALL)
"""A text, or a list or object without members. A text that does not end goes to the end: nothing is looked at twice."""


class BoundsError(ValueError):
    """The text is not JSON, or beyond its bounds; the message says which, as the end of a sentence about the text."""


class NotJsonError(BoundsError):
    """The text is not JSON at all."""


@dataclass(frozen=True)
class Bounds:
    """What a text may have at most.

    Attributes:
        chars: its characters, or bytes where it is read from bytes.
        depth: levels of values within values.
        values: values at all levels together, with names of members.
        repeated_names: whether an object may name a member twice, of which the last one counts.
    """

    chars: int
    depth: int = 32
    values: int = 100_000
    repeated_names: bool = False


def read(text: str | bytes, bounds: Bounds) -> Any:
    """The value of a JSON text.

    Raises:
        NotJsonError: it is not JSON as RFC 8259 has it, or an object names a member twice.
        BoundsError: a number is not finite or too long, a text holds half a surrogate pair, or it is larger or deeper
            than its bounds.
    """
    if len(text) > bounds.chars:
        raise BoundsError(f"has {len(text)} characters; the limit is {bounds.chars}")
    written = _decoded(text) if isinstance(text, bytes) else text
    if has_more([written], bounds.values):
        raise BoundsError(f"has more than {bounds.values} values")
    try:
        value = json.loads(
            written,
            object_pairs_hook=None if bounds.repeated_names else _unique,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_float,
        )
    except BoundsError:
        raise
    except RecursionError as error:
        raise BoundsError(f"is more than {bounds.depth} levels deep") from error
    except ValueError as error:
        raise NotJsonError(f"is not valid JSON: {error}") from error
    check(value, bounds)
    return value


def check(value: Any, bounds: Bounds) -> None:
    """Walk a value that was read from JSON.

    Raises:
        BoundsError: as `read`.
    """
    left, level, depth = bounds.values, [value], 0
    while level:
        left -= len(level)
        if left < 0:
            raise BoundsError(f"has more than {bounds.values} values")
        if depth > bounds.depth:
            raise BoundsError(f"is more than {bounds.depth} levels deep")
        inner: list[Any] = []
        for each in level:
            if isinstance(each, str):
                if not is_text(each):
                    raise BoundsError("has half a surrogate pair, which cannot be written as UTF-8")
            elif isinstance(each, dict):
                inner += each
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level, depth = inner, depth + 1


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotJsonError(f"is not UTF-8 ({error.reason} at byte {error.start})") from error


def has_more(texts: Sequence[str], values: int) -> bool:
    """Whether JSON texts have more values together, names of members included: known long before they are read."""
    most = values - len(texts)
    if sum(map(_marks, texts)) <= most:
        return False
    counts = (_marks(WITHOUT_MARKS.sub("0", text)) for text in texts)
    return any(count > most for count in itertools.accumulate(counts))


def _marks(text: str) -> int:
    return sum(map(text.count, MARKS))


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8. JSON can name halves of surrogate pairs."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) < len(members):
        raise NotJsonError("is not valid JSON: a name occurs twice in one object")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS or abs(number := int(digits)) > MAX_INTEGER:
        raise BoundsError(f"has the number {digits[:32]}...; whole numbers are from -2^64 to 2^64")
    return number


def _float(digits: str) -> float:
    number = float(digits) if len(digits) <= MAX_DIGITS else math.inf
    if not math.isfinite(number):
        raise BoundsError(f"has the number {digits[:32]}, which is too long, or too large for a double")
    return number


def _no_constant(name: str) -> NoReturn:
    raise NotJsonError(f"is not valid JSON: {name} is not a number of JSON")
