"""Says in words what is wrong with a kubeconfig. Errors of the client may quote a token, so their text is not shown."""

import binascii
import json
from typing import Any

import yaml

from slipway.tasks.contracts.errors import InputError

BROKEN = (TypeError, AttributeError, KeyError, IndexError, ValueError, yaml.YAMLError, OSError)
"""Errors of the Kubernetes client about a kubeconfig that is damaged, besides its own ConfigException."""

FOUND: dict[type[Exception], str] = {
    UnicodeError: "text that is not UTF-8",
    json.JSONDecodeError: "a server that does not answer with JSON",
    binascii.Error: "data that is not base64",
    ValueError: "a value that cannot be used",
    LookupError: "an entry that lacks a part",
}
"""What an error means; a subclass comes before its base."""


def of_kubeconfig(file: str, error: Exception) -> InputError:
    """The error about a damaged kubeconfig.

    Args:
        file: the kubeconfig.
        error: one of BROKEN.
    """
    return InputError(
        f"{file} is not a kubeconfig that can be used",
        found=_found(error),
        expected="clusters, users and contexts",
        remedy="Correct the file, get it again from the cluster's administrator, or set KUBECONFIG to another.",
    )


def _found(error: Exception) -> str:
    if isinstance(error, yaml.YAMLError):
        mark: Any = getattr(error, "problem_mark", None)
        return f"no YAML at line {mark.line + 1}, column {mark.column + 1}" if mark else "no YAML"
    if isinstance(error, OSError):
        name = f" ({error.filename})" if error.filename else ""
        return f"a file that cannot be read: {error.strerror or type(error).__name__}{name}"
    return next((text for kind, text in FOUND.items() if isinstance(error, kind)), "an entry of the wrong type")
