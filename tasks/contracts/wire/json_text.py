"""The one reader of JSON that others wrote: documents of the object store, and answers of servers. Pure.

It limits what `json` does not: depth, digits of a number, and surrogates, which no stream and no database takes.
"""

import itertools
import json
import math
import re
from typing import Any, NoReturn

from tasks.contracts.errors import InputError
from tasks.contracts.redaction import redacted

MAX_NUMBER_CHARS = 32
MAX_DEPTH = 100
"""The deepest nesting of values, far below what Python's own functions can visit."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
NO_BRACKET = re.compile(r"[^][{}]+")
STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


def parse_json(data: bytes | str, what: str, *, expected: str = "JSON") -> Any:
    """Parse JSON strictly: keys are unique, numbers finite and short, texts can be encoded, and the depth is limited.

    Raises:
        InputError: it is not valid JSON.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        _check_depth(text)
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_integer
        )
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        reason = redacted(str(error))
        raise InputError(
            f"{what} is not valid JSON ({reason})",
            expected=expected,
            remedy="Check whether it was truncated or overwritten.",
        ) from error
    return value


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    brackets = NO_BRACKET.sub("", STRING.sub("", text))
    if max(itertools.accumulate(map(STEP.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise ValueError(f"it is nested too deeply: more than {MAX_DEPTH} levels")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key occurs twice in one mapping")
    return mapping


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a finite number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _integer(text: str) -> int:
    if len(text) > MAX_NUMBER_CHARS:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)
