"""What is wrong with a document, in words for the person who wrote it. Pure."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from slipway.tasks.contracts.redaction import TOKEN, excerpt, field_name, redacted
from slipway.tasks.contracts.spec_fields import MLFLOW_MODEL, S3_FOLDER, VOLUME_FOLDER

Loc = tuple[int | str, ...]
Positions = Callable[[Loc], tuple[int, int] | None]
"""Line and column of a place in a document, both from 1."""

VIOLATIONS = 20
"""How many violations of a document a message lists."""
FOUND_CHARS = 60
PLACE_CHARS = 1000
FIELDS_LISTED = 12
LIKE, LIKELY = 0.6, 0.8
"""How alike two names are, as difflib counts it; LIKE is its own default."""
UNKNOWN, TOO_SHORT = "extra_forbidden", "too_short"
SECRETIVE = re.compile(r"(?i)token_secret|password|credential|api_key")
WORDS = {
    "missing": "is required",
    UNKNOWN: "is not a field",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_type": "must be text, in quotes if it looks like a number, a date or true/false",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_short": "must have at least {min_length} character{s}",
    "string_too_long": "must have at most {max_length} character{s}",
    TOO_SHORT: "must have at least {min_length} entr{ies}",
    "too_long": "must have at most {max_length} entr{ies}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a whole number of at most 15 digits",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "none_required": "must be empty",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "set_type": "must be a list",
    "frozen_set_type": "must be a list",
    "dict_type": "must be a mapping",
    "mapping_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "union_tag_not_found": "must be a mapping with the field {discriminator}",
    "union_tag_invalid": "must have as {discriminator} one of {expected_tags}",
    "datetime_type": "must be a date and a time",
    "datetime_parsing": "must be a date and a time",
    "datetime_from_date_parsing": "must be a date and a time",
    "timezone_aware": "must be a date and a time with a time zone",
    "value_error": "{error}",
    "assertion_error": "{error}",
}
"""A sentence for each type of pydantic's errors, without its subject. pydantic's own words are for programmers."""
PATTERNS = {
    r"^[a-z]([a-z0-9-]*[a-z0-9])?$": "must be lower-case letters, digits and dashes, and begin with a letter",
    r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$": "must not have control characters",
    r"^[^\s\x00-\x1f\x7f]+$": "must be one word",
    r"^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?/[A-Za-z0-9_]([A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?$": (
        "must be a repository of the Hub such as meta-llama/Llama-3.1-8B"
    ),
    r"^hf://datasets/[^@\s]+/[^@\s]+@[^/\s]+/\S+$": (
        "must be a file of a dataset, hf://datasets/OWNER/NAME@REVISION/FILE"
    ),
    rf"^({S3_FOLDER}|{MLFLOW_MODEL}|{VOLUME_FOLDER})$": (
        "must be a folder such as s3://bucket/folder or pvc://claim/folder, or a model such as mlflow:chat@champion or "
        "mlflow:chat/3"
    ),
    r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$": "must be the name of an image such as registry.example/slipway/tasks-cpu:1.0",
    r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$": "must be a bucket: 3 to 63 lower-case letters, digits, dots and dashes",
    r"^https?://[!-~]+$": "must be an address that begins with http:// or https://",
    r"^[0-9]{1,9}(\.[0-9]{1,3})?m?$": "must be CPUs such as 2 or 500m, in quotes",
    r"^[0-9]{1,12}(\.[0-9]{1,3})?(Ki|Mi|Gi|Ti|k|M|G|T)?$": "must be bytes such as 512Mi or 4Gi",
    r"^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$": "must be a zone such as eu-west-1a",
    r"^sm_[0-9]{2,4}$": "must be an architecture such as sm_89",
    r"^[A-Z]{3}$": "must be a currency such as EUR",
}
"""What to say in place of a pattern that is hard to read."""


def violations_of(error: ValidationError, model: type[BaseModel], what: str, positions: Positions | None) -> str:
    """Every violation of `model` in one line: where it is, what the rule is, and what was found; secrets are left out.

    Args:
        error: of the validation.
        model: what was validated.
        what: the name of the document.
        positions: finds a place in the document, if it has lines.
    """
    errors = error.errors(include_url=False)
    violations = [each for each in errors if each["type"] != TOO_SHORT or not _has_below(errors, each["loc"])]
    texts: list[str] = []
    for violation in violations[:VIOLATIONS]:
        position = positions(violation["loc"]) if positions else None
        at = f"{position[0]}:{position[1]}: " if position else ""
        name = ("line " if at else "") if texts else (f"{what}:" if at else f"{what}: ")
        texts.append(f"{name}{at}{violation_text(violation, model)}")
    if more := len(violations) - len(texts):
        texts.append(f"and {more} more")
    return "; ".join(texts)


def _has_below(violations: list[Any], place: Loc) -> bool:
    """Whether an entry of a place is wrong: pydantic does not count it among the entries."""
    return any(len(each["loc"]) > len(place) and each["loc"][: len(place)] == place for each in violations)


def violation_text(violation: Any, model: type[BaseModel]) -> str:
    """One of the errors of a ValidationError, without the name of the document."""
    kind, loc = violation["type"], violation["loc"]
    where = _place(loc, unknown=kind == UNKNOWN)
    found = "" if kind in {"missing", UNKNOWN} else f"found {_found(where, violation['input'])}"
    details = "; ".join(part for part in (found, _hint(violation, model)) if part)
    return f"{where}: {redacted(_rule(violation))}{f' ({details})' if details else ''}"


def _rule(violation: Any) -> str:
    context = violation.get("ctx", {})
    one = context.get("min_length", context.get("max_length")) == 1
    if (pattern := context.get("pattern")) in PATTERNS:
        return PATTERNS[pattern]
    try:
        return WORDS[violation["type"]].format(s="" if one else "s", ies="y" if one else "ies", **context)
    except KeyError:
        return "is not valid"


def _hint(violation: Any, model: type[BaseModel]) -> str:
    """What the writer may have meant; empty if nothing is close."""
    if violation["type"] == UNKNOWN:
        return _meant_field(model, violation["loc"])
    value, expected = violation["input"], str(violation.get("ctx", {}).get("expected", ""))
    if isinstance(value, str) and (close := _close(value, re.findall(r"'([^']*)'", expected))):
        return f"did you mean {close}?"
    return ""


def _meant_field(model: type[BaseModel], loc: Loc) -> str:
    key, siblings = str(loc[-1]), sorted(_fields(model, loc[:-1]))
    if close := _close(key, siblings, LIKELY):
        return f"did you mean {close}?"
    if places := [path for path in _paths(model) if path.endswith(f".{key}")]:
        return f"did you mean {' or '.join(places[:2])}?"
    if close := _close(key, siblings):
        return f"did you mean {close}?"
    return f"expected {', '.join(siblings)}" if 0 < len(siblings) <= FIELDS_LISTED else ""


def _close(text: str, names: list[str], likeness: float = LIKE) -> str | None:
    return next(iter(difflib.get_close_matches(text[:FOUND_CHARS].lower(), names, 1, likeness)), None)


def _fields(model: type[BaseModel], loc: Loc) -> set[str]:
    """Names of the fields at a place, which may pass through lists, mappings and unions."""
    models = {model}
    for part in loc:
        if deeper := {each for known in models for each in _field_models(known, str(part))}:
            models = deeper
    return {field.alias or name for each in models for name, field in each.model_fields.items()}


def _paths(model: type[BaseModel]) -> Iterator[str]:
    """Every field of a section of the document, as section.field."""
    for section, field in model.model_fields.items():
        for part in sorted({name for each in _models(field.annotation) for name in each.model_fields}):
            yield f"{section}.{part}"


def _field_models(model: type[BaseModel], name: str) -> Iterator[type[BaseModel]]:
    if name in model.model_fields:
        yield from _models(model.model_fields[name].annotation)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _place(parts: Loc, *, unknown: bool) -> str:
    """Name the place of a violation. An unknown key may be a token that was pasted there."""
    names = [excerpt(str(part), PLACE_CHARS) for part in parts]
    if unknown or "[key]" in names:
        at = names.index("[key]") - 1 if "[key]" in names else -1
        names[at] = field_name(parts[at])
    return ".".join(names) or "the document"


def _found(where: str, value: Any) -> str:
    """Describe the value without secrets: people paste tokens where a name belongs, and errors reach logs."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        names = [field_name(key) for key in list(value)[:VIOLATIONS]]
        more = ", …" if len(value) > VIOLATIONS else ""
        return f"a mapping of {', '.join(names)}{more}" if names else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of length {len(value)}"
    # cut before it is quoted, because a value may be as long as its document
    text = repr(value[: 4 * FOUND_CHARS] if isinstance(value, str) else value)
    if where.endswith("[key]") or SECRETIVE.search(where) or TOKEN.search(text):
        return f"{'text' if isinstance(value, str) else type(value).__name__}, not shown: it may be a secret"
    return text if len(text) <= FOUND_CHARS else text[: FOUND_CHARS - 3] + "..."
