"""Base of every contract, and the one way in which contracts become bytes and digests."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.contracts.errors import InputError

DNS_LABEL = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"
"""A label as in RFC 1123 that also starts with a letter (RFC 1035), as a Service's name must."""

FOUND_CHARS = 60
SECRETIVE = re.compile(r"(?i)token_secret|password|credential|api_key")
TOKEN = re.compile(r"hf_[A-Za-z0-9]{8}|AKIA[A-Z0-9]{8}|eyJ[\w-]{8}")
"""Tokens of the Hub, of AWS and JSON web tokens, by how they begin."""


class Contract(BaseModel):
    """Closed and frozen: an unknown key is an error, a value never changes after it was checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    remedy: ClassVar[str] = "Slipway writes this document itself: was it edited, or written by another version?"
    """What a person does about a document that does not hold; the end of the error."""


C = TypeVar("C", bound=Contract)


def canonical_json(value: Any) -> bytes:
    """One byte string per value: keys sorted, no spaces, ASCII. What every key is the sha256 of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def sha256_of(value: Any) -> str:
    """Hex sha256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def read_contract(model: type[C], data: Any, what: str) -> C:
    """Validate `data` as `model`.

    Args:
        model: the contract.
        data: parsed YAML or JSON.
        what: how a message names the thing, such as a file's path.

    Raises:
        InputError: every violation: where, what was found (no secret), what was expected, and the model's remedy.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{what}: {_violations(model, error)}") from error


def read_contract_json(model: type[C], data: bytes, what: str) -> C:
    """As `read_contract`, from the bytes of a JSON document.

    Raises:
        InputError: also when it is no JSON.
    """
    try:
        value = json.loads(data)
    except ValueError as error:
        raise InputError(
            f"{what} is no JSON ({error}); expected a {model.__name__}. Was it cut or overwritten?"
        ) from error
    return read_contract(model, value, what)


def _violations(model: type[Contract], error: ValidationError) -> str:
    lines = []
    for violation in error.errors(include_url=False):
        where = ".".join(str(part) for part in violation["loc"]) or "the whole"
        found = (
            "" if violation["type"] == "missing" else f" (found {_found(violation['type'], where, violation['input'])})"
        )
        lines.append(f"{where}: {violation['msg'].removeprefix('Value error, ')}{found}")
    return "; ".join(lines) + f"; expected a {model.__name__}. {model.remedy}"


def _found(violation: str, where: str, value: Any) -> str:
    """The value in few words. People paste tokens where a name belongs, and errors end in logs: those are not shown."""
    if isinstance(value, Mapping):
        return f"a mapping of {', '.join(map(str, value)) or 'nothing'}"
    unknown = violation == "extra_forbidden" and not isinstance(value, int | float | None)
    text = repr(value)
    if unknown or SECRETIVE.search(where) or TOKEN.search(text):
        return f"a {type(value).__name__}, not shown: it may be a secret"
    return text if len(text) <= FOUND_CHARS else text[: FOUND_CHARS - 3] + "..."
