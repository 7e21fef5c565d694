"""The version of Slipway, and what a document says when it needs a newer one. Pure."""

import re
from typing import Any

from slipway.tasks.contracts.errors import InputError

VERSION = "0.1.0"
"""This repeats the version of pyproject.toml, because images do not have the package's metadata."""
NEEDS = "needs"
"""Key of a stored document: the oldest version of Slipway that can read it. A version that adds a field to a stored
document sets it there; 0.1.0 did not write it."""
API_VERSION, API_GROUP = "slipway/v1", "slipway/"
NUMBERS = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})")


def check_readable(document: Any, what: str) -> Any:
    """Return a parsed document without the key `needs`, if this version can read it.

    Args:
        document: parsed JSON or YAML.
        what: the name of the document in messages, such as its URI.

    Raises:
        InputError: it needs a newer version, which the error names.
    """
    if not isinstance(document, dict):
        return document
    needs, api = document.get(NEEDS), document.get("apiVersion")
    if isinstance(needs, str) and (numbers := NUMBERS.fullmatch(needs)):
        if _as_tuple(numbers) > _as_tuple(NUMBERS.fullmatch(VERSION)):
            raise InputError(
                f"{what} was written by a newer Slipway",
                found=f"needs {needs}",
                expected=f"at most {VERSION}, the version that reads it",
                remedy=f"Upgrade to Slipway {needs} or later: docs/day-two.md, Upgrade.",
            )
        return {key: value for key, value in document.items() if key != NEEDS}
    if isinstance(api, str) and api.startswith(API_GROUP) and api != API_VERSION:
        raise InputError(
            f"{what} is for another version of Slipway",
            found=f"apiVersion {api[:40]}",
            expected=f"{API_VERSION}, which Slipway {VERSION} reads",
            remedy="Use the Slipway that this file was written for, or correct apiVersion.",
        )
    return document


def _as_tuple(numbers: "re.Match[str] | None") -> tuple[int, ...]:
    assert numbers is not None
    return tuple(int(number) for number in numbers.groups())
