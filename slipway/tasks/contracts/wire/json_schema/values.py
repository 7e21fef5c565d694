"""Expressions for values that hold no value of another schema: numbers, texts, and those that a schema lists."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..grammar import GrammarError
from ..grammar.automaton import Automaton, common
from ..grammar.disjoint import key, kinds_of
from ..grammar.ebnf import BLANK, CHAR, Grammar, literal, times
from ..grammar.formats import format_languages
from ..grammar.numbers import number_language
from ..grammar.patterns import ANYTHING
from ..grammar.regular import ANY, Regex, Repeat, one_of, text
from .expressions import bracketed, either, quoted
from .keywords import BY_TYPE, bounds_of, check_alone, enum_of, languages_of, number_bounds, types_of
from .limits import MAX_ALL_REPEATS, SchemaError

OF_LISTED = frozenset({"enum", "const", "type"})
OF_TEXTS = BY_TYPE["string"] - {"allOf"}
OF_NUMBERS = BY_TYPE["number"] - {"format"}


class Values:
    """Writes such values into a grammar, within the bounds of a whole schema."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar, self._repeats = grammar, MAX_ALL_REPEATS

    def enum(self, words: Mapping[str, Any], at: str) -> str:
        """One of the values that `enum` and `const` name, as far as `type` allows them."""
        fitting = fitting_values(words, at)
        if not fitting:
            raise SchemaError(f"{at[:128]} names no value that the keywords beside allow. Change them or the values.")
        return self.listed(fitting, at)

    def listed(self, values: Sequence[Any], at: str) -> str:
        """An expression for one of some values."""
        texts = [value for value in values if isinstance(value, str)]
        others = [json.dumps(value) for value in values if not isinstance(value, str | dict | list)]
        written = [self.literal(value) for value in values if isinstance(value, dict | list)]
        try:
            if texts:
                written.append(rf'"\"" {self.grammar.regex(one_of(texts))} "\""')
            if others:
                written.append(self.grammar.regex(one_of(others)))
        except GrammarError as error:
            raise SchemaError(f"{at[:128]}/enum is too large: {error}.") from error
        return either(written)

    def literal(self, value: Any) -> str:
        """Exactly this value."""
        if isinstance(value, dict):
            members = [
                f'{literal(quoted(name))} {BLANK} ":" {BLANK} {self.literal(each)}' for name, each in value.items()
            ]
            return bracketed("{", members, "}")
        if isinstance(value, list):
            return bracketed("[", [self.literal(each) for each in value], "]")
        written = json.dumps(value, ensure_ascii=False)
        self.spend(len(written), "an enum")
        return literal(written)

    def number(self, words: Mapping[str, Any], at: str, *, whole: bool) -> str:
        """A number within its bounds; a whole one where `whole`."""
        bounds = number_bounds(words, at, whole=whole)
        try:
            return self.grammar.add(self.grammar.regex(number_language(bounds)))
        except GrammarError as error:
            raise SchemaError(f"{at[:128]}: {error}.") from error

    def string(self, words: Mapping[str, Any], at: str) -> str:
        """A text of a length, format and patterns."""
        least, most = bounds_of(words, "minLength", "maxLength", at)
        self.repeat(max(least, most or 0), at)
        inner = self.texts(languages_of(words, at), least, most, at)
        return rf'"\"" {inner} "\""'

    def texts(
        self, languages: Sequence[Regex], least: int, most: int | None, at: str, excluded: Sequence[str] = ()
    ) -> str:
        """An expression for what is between the quotes of a JSON string."""
        bounded = (least, most) != (0, None)
        try:
            if not languages and not excluded:
                if most is None:
                    return times(self.grammar.common(CHAR), least, None)
                return self.grammar.regex(Repeat(ANY, least, most))
            if len(languages) == 1 and not bounded and not excluded and languages[0] in format_languages():
                return self.grammar.regex(languages[0])
            return self.grammar.machine(machine_of(languages, least, most, excluded))
        except GrammarError as error:
            raise SchemaError(
                f"{at[:128]}: {error}. Look at {', '.join(sorted(BY_TYPE['string']))}, and make them simpler."
            ) from error

    def repeat(self, number: int, at: str) -> None:
        """Count a bound of length, items or properties.

        Raises:
            SchemaError: all of them together are too many.
        """
        self._repeats -= number
        if self._repeats < 0:
            raise SchemaError(
                f"{at[:128]}: all bounds of length, items and properties together are more than {MAX_ALL_REPEATS}. "
                "Lower them, or leave some out."
            )

    def spend(self, parts: int, at: str) -> None:
        """Count parts of a grammar that are written without it.

        Raises:
            SchemaError: the grammar has too many.
        """
        try:
            self.grammar.spend(parts)
        except GrammarError as error:
            raise SchemaError(f"the schema is too large at {at[:128]}: {error}.") from error


def machine_of(languages: Sequence[Regex], least: int, most: int | None, excluded: Sequence[str] = ()) -> Automaton:
    """What recognizes texts of all these languages, of a length, and none of those that are excluded."""
    bounds = [Repeat(ANY, least, most)] if (least, most) != (0, None) else []
    return common([*languages, *bounds] or [ANYTHING], [text(name) for name in excluded])


def fitting_values(words: Mapping[str, Any], at: str) -> list[Any]:
    """The values of `enum` and `const` that the keywords beside them allow.

    Raises:
        SchemaError: there are too many, or keywords beside them say something of arrays or objects.
    """
    check_alone(words, OF_LISTED | OF_TEXTS | OF_NUMBERS, at)
    values = enum_of({name: each for name, each in words.items() if name in OF_LISTED}, at)
    kinds = types_of(words, at) if "type" in words else list(BY_TYPE)
    fitting = [value for value in values if any(kind in kinds for kind in kinds_of(value))]
    if "const" in words:
        fitting = [value for value in fitting if key(value) == key(words["const"])]
    if OF_TEXTS & {*words} and any(isinstance(value, str) for value in fitting):
        least, most = bounds_of(words, "minLength", "maxLength", at)
        machine = machine_of(languages_of(words, at), least, most)
        fitting = [value for value in fitting if not isinstance(value, str) or machine.matches(value)]
    if OF_NUMBERS & {*words} and any("number" in kinds_of(value) for value in fitting):
        bounds = number_bounds(words, at, whole=False)
        fitting = [value for value in fitting if "number" not in kinds_of(value) or bounds.allow(value)]
    return fitting
