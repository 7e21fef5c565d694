"""The values of a schema that has few of them."""

import math
from collections.abc import Mapping
from typing import Any

from ..grammar.disjoint import listed_values
from .document import Document
from .keywords import CHOICES, number_bounds, types_of
from .limits import MAX_DEPTH, MAX_REPEATS
from .values import fitting_values

OF_TYPE: Mapping[str, list[Any]] = {"null": [None], "boolean": [True, False]}


def values_of(schema: Any, document: Document, at: str, depth: int = 0) -> list[Any] | None:
    """All values of a schema; None where they are too many, or not known.

    Raises:
        SchemaError: its bounds are wrong.
    """
    words = document.single(schema, at)
    if listed_values(words) is not None:
        return fitting_values(words, at)
    for keyword in CHOICES:
        if keyword in words and depth < MAX_DEPTH and isinstance(words[keyword], list):
            return _together([values_of(each, document, at, depth + 1) for each in words[keyword]])
    if "type" not in words:
        return None
    return _together([_of_type(kind, words, at) for kind in types_of(words, at)])


def _of_type(kind: str, words: Mapping[str, Any], at: str) -> list[Any] | None:
    if kind != "integer":
        return OF_TYPE.get(kind)
    bounds = number_bounds(words, at, whole=True)
    if bounds.low is None or bounds.high is None or bounds.high - bounds.low > MAX_REPEATS:
        return None
    return [number for number in range(math.ceil(bounds.low), math.floor(bounds.high) + 1) if bounds.allow(number)]


def _together(found: list[list[Any] | None]) -> list[Any] | None:
    values = [value for each in found if each is not None for value in each]
    return None if None in found else values
