"""From a JSON Schema to the grammar that an answer obeys, the same for every engine. Pure.

No engine's own reading of a schema is used: xgrammar leaves out keywords that it does not know without a word, and
takes 3 for an integer from 7 on (docs/decisions/0044-grammars-of-our-own.md). What passes here is written as a
grammar and obeyed whole; everything else is refused by its place and name. The models of Triton share this file and the
folder grammar/ by links, so they import nothing of Slipway.
"""

import json
from typing import Any

from ..bounded_json import BoundsError, read
from ..grammar.ebnf import Dialect
from .limits import BOUNDS, SchemaError
from .translation import Translation

__all__ = ["SchemaError", "compact_schema", "grammar_of"]


def compact_schema(schema: Any) -> str:
    """The schema as compact ASCII JSON, within the bounds of a text. Whether it can be enforced, grammar_of tells.

    Raises:
        SchemaError: it is too large or too deep, or no object.
    """
    text = json.dumps(schema, separators=(",", ":"))
    _read(text)
    return text


def grammar_of(text: str, dialect: Dialect = Dialect.RANGES) -> str:
    """The grammar of answers that obey a schema, in EBNF, root first.

    Answers have the properties of an object in the order of the schema. An object that names its properties and says
    nothing of others gets none.

    Raises:
        SchemaError: it is not JSON, too large, contradicts itself, or uses what cannot be enforced.
    """
    return Translation(_read(text), dialect).grammar()


def _read(text: str) -> dict[str, Any]:
    try:
        schema = read(text, BOUNDS)
    except BoundsError as error:
        raise SchemaError(f"the schema {str(error)[:128]}.") from error
    if not isinstance(schema, dict):
        raise SchemaError(f"the schema is {text[:64]}; expected a JSON object.")
    return schema
