"""The base of every contract, and the one way to turn contracts into bytes and digests."""

import hashlib
import json
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.redaction import redacted
from slipway.tasks.contracts.version import check_readable
from slipway.tasks.contracts.violations import Positions, violations_of
from slipway.tasks.contracts.wire.bounded_json import Bounds, BoundsError, read

DNS_LABEL = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"
"""A label as in RFC 1123 that also starts with a letter (RFC 1035), as a Service's name must."""

PRINTABLE = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
"""Text without control characters, which terminals obey and databases refuse."""

MAX_TEXT_CHARS = 1000
"""Longest text in a spec or a site file, unless its field sets another limit."""
DOCUMENT = Bounds(chars=256 << 20, depth=100, values=10_000_000)
"""A document of the object store, or an answer of a server: as large as the tables of a benchmark can be."""


WAS_IT_CUT = "Check whether it was truncated or overwritten."


class Contract(BaseModel):
    """A closed and frozen document: an unknown key is an error, and a checked value never changes."""

    # a process builds the few validators that it uses: a fifth of a step's imports were the others
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    if_invalid: ClassVar[str] = (
        "Slipway writes this document itself: check whether it was edited, or written by another version."
    )
    """The remedy in errors about an invalid document."""


class UserDocument(Contract):
    """A part of a document that a user writes: every text is bounded."""

    model_config = ConfigDict(str_max_length=MAX_TEXT_CHARS)


C = TypeVar("C", bound=Contract)


def canonical_json(value: Any) -> bytes:
    """One byte string for each value: sorted keys, no spaces, ASCII. Every key is the sha256 of such a string."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def sha256_of(value: Any) -> str:
    """Hex sha256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def parse_json(data: bytes | str, what: str, *, expected: str = "JSON", remedy: str = WAS_IT_CUT) -> Any:
    """The value of a JSON document that others wrote.

    Raises:
        InputError: it is not valid JSON, or beyond DOCUMENT.
    """
    try:
        return read(data, DOCUMENT)
    except BoundsError as error:
        raise InputError(
            f"{what} {redacted(str(error))}",
            expected=expected,
            remedy=remedy,
        ) from error


def read_contract(model: type[C], data: Any, what: str, positions: Positions | None = None) -> C:
    """Validate `data` as `model`.

    Args:
        model: the contract.
        data: parsed YAML or JSON.
        what: the name of the document in messages, such as a file's path.
        positions: finds lines and columns of a document that has them.

    Raises:
        InputError: `what` lists the violations with the values found, secrets left out. Or
            a newer version wrote the document.
    """
    try:
        return model.model_validate(check_readable(data, what))
    except ValidationError as error:
        raise InputError(violations_of(error, model, what, positions), remedy=model.if_invalid) from error


def read_contract_json(model: type[C], data: bytes, what: str) -> C:
    """Validate the bytes of a JSON document as `read_contract` does.

    Raises:
        InputError: also when it is not valid JSON.
    """
    return read_contract(model, parse_json(data, what, expected=f"a {model.__name__}"), what)


def check_address(uri: str, *own: str) -> None:
    """Refuse a document that lies where another belongs: whoever wrote it there could pass it off as that one.

    Args:
        uri: where it was read.
        own: the addresses that follow from its content.

    Raises:
        InputError: they differ.
    """
    if wrong := [address for address in own if address != uri]:
        raise InputError(
            f"{uri} holds the document of another address",
            found=wrong[0],
            expected=uri,
            remedy="Copy it again from a store that you trust.",
        )
