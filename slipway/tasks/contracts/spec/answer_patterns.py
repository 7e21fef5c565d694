"""Regular expressions of specs, matched in time linear in the text. Pure.

They are matched against a model's answers. Python's engine may take exponential time on those; the engine of
pydantic-core (https://docs.rs/regex) never backtracks, limits a compiled pattern to 10 MiB, and is installed wherever a
spec is read. It has neither look-around nor backreferences.
"""

import functools

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_PATTERN_CHARS = 500
MAX_SEARCHED_CHARS = 10_000
"""The longest answer that a pattern can accept: the largest patterns take about 0.3 ms for each of its characters."""


def check_pattern(pattern: str) -> None:
    """Make sure that `pattern` can be searched for.

    Raises:
        ValueError: it is too long, not a regular expression, or needs backtracking.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_CHARS} are allowed")
    try:
        _compiled(pattern)
    except SchemaError as error:
        reason = " ".join(str(error).split("SchemaError:")[-1].split())
        raise ValueError(f"{pattern!r} is not a usable regular expression: {reason}") from error


def is_found(pattern: str, text: str) -> bool:
    """Search for `pattern` in `text`; False for a text that is too long to search.

    Searching only its beginning would let `$` match in the middle of the answer.
    """
    return len(text) <= MAX_SEARCHED_CHARS and _compiled(pattern).isinstance_python(text)


@functools.lru_cache(maxsize=64)
def _compiled(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
