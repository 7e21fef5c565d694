"""Base of every contract, and the one way in which contracts become bytes and digests."""

import hashlib
import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.contracts.errors import InputError

DNS_LABEL = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"
"""A label as in RFC 1123 that also starts with a letter (RFC 1035), as a Service's name must."""


class Contract(BaseModel):
    """Closed and frozen: an unknown key is an error, a value never changes after it was checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
        InputError: every violation on a line: where, what was found, what was expected.
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
        found = "" if violation["type"] == "missing" else f" (found {_short(violation['input'])})"
        lines.append(f"{where}: {violation['msg'].removeprefix('Value error, ')}{found}")
    return "; ".join(lines) + f". `slipway schema` prints what a {model.__name__} may hold."


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004
