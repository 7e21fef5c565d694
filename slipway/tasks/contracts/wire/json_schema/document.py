"""A whole schema: the schemas at its places, what references lead to, and one schema for several that all hold."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urljoin

from ..grammar import GrammarError
from ..grammar.disjoint import contradict, is_never, requires_never
from ..grammar.merging import merged
from .keywords import CHOICES, is_patterns, is_several, token, words_of
from .limits import MAX_DEPTH, MAX_SCHEMAS, SchemaError
from .plain_form import DEPENDENCIES, NAMED, VALUES, Dependency, place_of, plain_form


class Document:
    """The schemas of one document, of which at most MAX_SCHEMAS are read."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._sent, self._root, self._left = root, plain_form(root, "#"), MAX_SCHEMAS
        names = [*_names_of(self._root, "")]
        self._named, self._names = dict(names), Counter(name for name, _ in names)
        self._merges: dict[int, Mapping[str, Any]] = {}
        for group in ("$defs", "definitions"):
            if not isinstance(root.get(group, {}), dict):
                raise SchemaError(f"#/{group} is {str(root[group])[:64]!r}; expected an object.")

    def spend(self, at: str, depth: int) -> None:
        """Count one more schema, at a place with `depth` schemas around it.

        Raises:
            SchemaError: there are too many, or too many around it.
        """
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise SchemaError(
                f"the schema is too large at {at[:128]}, or refers to itself without end: at most {MAX_SCHEMAS} "
                f"schemas within it, {MAX_DEPTH} deep.{self._multiplied()}"
            )

    def _multiplied(self) -> str:
        """Why a schema becomes larger than it was sent, if it does."""
        count, place = max(_dependencies_in(self._sent, "#"))
        what = "entries of dependentRequired or its like, each of which may double it. Use fewer."
        return f" {place[:128]} has {count} {what}" if count > 1 else ""

    def at(self, place: str) -> Any:
        """The schema at a place of the root; None where there is none."""
        found: Any = self._root
        for part in place.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return found

    def place(self, reference: Any) -> str | None:
        """The place that a `$ref` names, by its path, `$anchor` or `$id`; None where it is not of this document.

        Raises:
            SchemaError: two places have that name.
        """
        if not isinstance(reference, str):
            return None
        if re.fullmatch(r"#(/.{1,512})?", reference, re.DOTALL):
            return reference
        if self._names[reference] > 1:
            raise SchemaError(f"$ref {reference[:64]!r} names two schemas. Give each a name of its own.")
        return self._named.get(reference)

    def resolved(self, schema: Any, at: str) -> Mapping[str, Any]:
        """The keywords of a schema, those of another one where it only refers to that."""
        for _ in range(MAX_DEPTH):
            words = words_of(schema, at)
            if set(words) != {"$ref"}:
                return words
            target = self.place(words["$ref"])
            schema = None if target is None else self.at(target)
        raise SchemaError(f"{at[:128]} refers to itself without end.")

    def merged(self, words: Mapping[str, Any], at: str) -> Mapping[str, Any]:
        """One schema for several that all hold, made once: one without choices, or a choice alone."""
        keyword = next(name for name in ("allOf", *CHOICES) if name in words)
        number = id(words[keyword])  # the list stays where it is, in the root or in a schema that was made here
        if number not in self._merges:
            self._merges[number] = self._merge(self._parts(words, at, 0), at, 0)
        return self._merges[number]

    def single(self, schema: Any, at: str) -> Mapping[str, Any]:
        """The keywords of a schema, wherever it refers to, as one schema."""
        words = self.resolved(schema, at)
        return self.merged(words, at) if is_several(words) else words

    def _merge(self, parts: Sequence[Mapping[str, Any]], at: str, depth: int) -> Mapping[str, Any]:
        if len(parts) == 1 and not is_several(parts[0]):
            return parts[0]
        if any("unevaluatedProperties" in part for part in parts[1:]):
            raise SchemaError(f"{at[:128]}: allOf has unevaluatedProperties within. Use additionalProperties instead.")
        for keyword in CHOICES:
            for number, part in enumerate(parts):
                if keyword in part:
                    beside = {name: each for name, each in part.items() if name != keyword}
                    others = [*parts[:number], *([beside] if beside else []), *parts[number + 1 :]]
                    return self._distributed(keyword, part[keyword], others, at, depth + 1)
        try:
            return merged([self.resolved(part, at) for part in parts])
        except GrammarError as error:
            raise SchemaError(f"{at[:128]}: {error}. Write one schema instead.") from error

    def _distributed(
        self, keyword: str, options: Any, others: Sequence[Mapping[str, Any]], at: str, depth: int
    ) -> Mapping[str, Any]:
        """A choice of options that all hold together with `others`, without those that nothing obeys then."""
        if not isinstance(options, list) or not options:
            raise SchemaError(f"{at[:128]}/{keyword} is not a list of schemas.")
        whole: list[Mapping[str, Any]] = []
        for number, each in enumerate(options):
            place = place_of(options, at, keyword, number)
            if is_never(each):
                continue
            parts = [*others, *self._parts(self.resolved(each, place), place, depth)]
            # an option of anyOf that no object obeys may be left out; of oneOf, it may still be what null obeys
            is_empty = keyword == "anyOf" and requires_never(parts)
            if not is_empty and not self._contradict(parts, place):
                whole.append(self._merge(parts, place, depth))
        if not whole:
            where = place_of(options, at, keyword)
            raise SchemaError(f"{where[:128]} has no option that the keywords beside it allow.")
        return {keyword: Dependency(whole, options.place) if isinstance(options, Dependency) else whole}

    def _contradict(self, parts: Sequence[Mapping[str, Any]], at: str) -> bool:
        pairs = itertools.combinations(parts, 2)
        return any(contradict(one, other, lambda schema: self.resolved(schema, at)) for one, other in pairs)

    def _parts(self, words: Mapping[str, Any], at: str, depth: int) -> list[Mapping[str, Any]]:
        """What is beside `allOf`, and then all schemas in it, without any `allOf` but of patterns."""
        self.spend(at, depth)
        inner = words.get("allOf")
        if "allOf" not in words or is_patterns(inner):
            return [words]
        if not isinstance(inner, list) or not inner:
            raise SchemaError(f"{at[:128]}/allOf is not a list of schemas.")
        beside = {name: each for name, each in words.items() if name != "allOf"}
        # only what is beside may have unevaluatedProperties, so that it comes first even if it is empty
        found: list[Mapping[str, Any]] = [beside] if beside or len(inner) > 1 else []
        for number, each in enumerate(inner):
            place = place_of(inner, at, "allOf", number)
            part = words_of(each, place)
            resolved = part if len(inner) == 1 and not beside else self.resolved(part, place)
            found += self._parts(resolved, place, depth + 1)
        return found


def _names_of(schema: Any, at: str, base: str = "") -> Iterator[tuple[str, str]]:
    """Names and places of a schema, or several, and of those within. Values that are no schemas name none.

    `base` is the `$id` of the nearest schema around them, but for the root's.

    Raises:
        SchemaError: a `$ref` means another place there than it does elsewhere.
    """
    if isinstance(schema, dict):
        for word, before in (("$id", ""), ("$anchor", "#")):
            if isinstance(schema.get(word), str):
                name = _joined(base, before + schema[word], at)
                yield name, f"#{at}"
                base = name if word == "$id" and at and not schema[word].startswith("#") else base
        _check_reference(schema.get("$ref"), at, base)
    for place, each in _schemas_in(schema, at):
        yield from _names_of(each, place, base)


def _dependencies_in(schema: Any, at: str) -> Iterator[tuple[int, str]]:
    """How many properties ask for something in a schema and in those within, and where."""
    named = [schema.get(word) for word in DEPENDENCIES] if isinstance(schema, dict) else []
    yield sum(len(each) for each in named if isinstance(each, dict)), at
    for place, each in _schemas_in(schema, at):
        yield from _dependencies_in(each, place)


def _schemas_in(schema: Any, at: str) -> Iterator[tuple[str, Any]]:
    """What may be a schema within one, and where."""
    members = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for name, each in members:
        place = f"{at}/{token(name)}"
        if name in NAMED and isinstance(each, dict):
            yield from ((f"{place}/{token(key)}", inner) for key, inner in each.items())
        elif name not in VALUES:
            yield place, each


def _check_reference(reference: Any, at: str, base: str) -> None:
    if not isinstance(reference, str) or not base:
        return
    if reference.startswith("#") or _joined(base, reference, at) != reference:
        raise SchemaError(
            f"#{at[:127]} has $ref {reference[:64]!r}, which is relative to the $id {base[:64]!r} around it. Refer to "
            "the $id itself, or leave it out."
        )


def _joined(base: str, reference: str, at: str) -> str:
    """The reference as it is below a base (RFC 3986)."""
    try:
        return urljoin(base, reference)
    except ValueError as error:
        raise SchemaError(
            f"#{at[:127]} has {reference[:64]!r}, which is no URI reference below {base[:64]!r}."
        ) from error
