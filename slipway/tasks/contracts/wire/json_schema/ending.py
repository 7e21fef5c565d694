"""Whether an answer to a schema can ever be complete."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from ..grammar.disjoint import is_never
from .document import Document
from .keywords import CHOICES, is_several, items_of, properties_of, types_of, words_of
from .limits import SchemaError


def check_ends(document: Document, places: Iterable[str]) -> None:
    """Refuse a place whose values always need another one of it: no answer could ever be complete.

    Each round adds the places whose values can be completed with those of the places that are known to.

    Raises:
        SchemaError: names the place.
    """
    left, ending = dict.fromkeys(places), set[str]()
    while found := [place for place in left if _ends(document.at(place), place, ending, document)]:
        ending.update(found)
        for place in found:
            del left[place]
    if left:
        raise SchemaError(
            f"{[*left][-1][:128]} requires itself, or a place that does: no answer could be complete. Leave a "
            "property out of required, or allow null."
        )


def _ends(schema: Any, at: str, ending: AbstractSet[str], document: Document) -> bool:
    """Whether a value of the schema, which was translated, needs values of places in `ending` only."""

    def ends(schema: Any) -> bool:
        return _ends(schema, at, ending, document)

    words = words_of(schema, at)
    if "$ref" in words:
        return document.place(words["$ref"]) in ending
    if not words or "enum" in words or "const" in words:
        return True
    if is_several(words):
        return ends(document.merged(words, at))
    for keyword in CHOICES:
        if keyword in words:
            return any(ends(each) for each in words[keyword] if not is_never(each))
    return any(all(map(ends, _needed(kind, words, at))) for kind in types_of(words, at))


def _needed(kind: str, words: Mapping[str, Any], at: str) -> list[Any]:
    """The schemas of the values that every value of a type has within it."""
    if kind == "object":
        properties, required = properties_of(words, at)
        others = words.get("additionalProperties", words.get("unevaluatedProperties", True))
        return [properties.get(name, others) for name in required]
    if kind == "array":
        first, rest, least, _ = items_of(words, at)
        return [*first[:least], *([rest] if least > len(first) else [])]
    return []
