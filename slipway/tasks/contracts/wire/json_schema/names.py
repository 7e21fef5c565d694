"""The names that properties may have."""

from collections.abc import Mapping
from typing import Any

from ..grammar import GrammarError
from .keywords import BY_TYPE, bounds_of, check_alone, enum_of, languages_of
from .limits import SchemaError
from .values import machine_of


class Names:
    """The names that `propertyNames` allows."""

    def __init__(self, words: Mapping[str, Any], at: str) -> None:
        self.listed: list[str] | None = None
        if "enum" in words or "const" in words:
            self.listed = [each for each in enum_of(words, at) if isinstance(each, str)]
            return
        check_alone(words, {"type"} | BY_TYPE["string"], at)
        if words.get("type", "string") != "string":
            raise SchemaError(f"{at[:128]} has the type {str(words['type'])[:64]!r}; names are strings.")
        self.languages = languages_of(words, at)
        self.least, self.most = bounds_of(words, "minLength", "maxLength", at)
        is_limited = bool(self.languages) or (self.least, self.most) != (0, None)
        try:
            self._machine = machine_of(self.languages, self.least, self.most) if is_limited else None
        except GrammarError as error:
            raise SchemaError(f"{at[:128]}: {error}.") from error

    def allow(self, name: str) -> bool:
        """Whether a property may be called so."""
        if self.listed is not None:
            return name in self.listed
        return self._machine is None or self._machine.matches(name)
