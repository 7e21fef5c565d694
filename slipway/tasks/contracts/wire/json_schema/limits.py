"""What a schema may be at most, and the error that refuses it."""

from ..bounded_json import Bounds

MAX_CHARS = 32_768
MAX_SCHEMAS = 256
"""Schemas within a schema."""
MAX_DEPTH = 16
MAX_ENUM = 1024
MAX_COMPARED = 32
"""Options of a oneOf that are compared with one another."""
MAX_NAME = 256
"""Characters of a property's name."""
MAX_REPEATS = 256
"""The most items or characters that a bound may name: 60 tokens of a text of 256 take 0.6 s, of 512 2 s (OpenVINO GenAI
2026.4, a vocabulary of 768), in which all other answers wait."""
MAX_ALL_REPEATS = 1024
"""All bounds of a schema together."""

BOUNDS = Bounds(chars=MAX_CHARS, depth=64)
"""A schema within a schema is two or three levels of JSON below it."""


class SchemaError(ValueError):
    """The schema cannot be enforced; the text says where, why and what to do."""
