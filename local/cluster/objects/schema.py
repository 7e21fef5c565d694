"""Detects unknown fields with the API types of the kubernetes client."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from .resources import Object, Resource
from .status import bad_request

_LIST = re.compile(r"^list\[(.+)\]$")
_DICT = re.compile(r"^dict\(str, (.+)\)$|^dict\[str, (.+)\]$")
_CLIENT_NAMES = {"V1Event": "CoreV1Event"}


def refuse_unknown_fields(resource: Resource, item: Object) -> None:
    """Refuse misspelt fields, which would otherwise have no effect (`fieldValidation=Strict`).

    Raises:
        ApiError: 400, listing every unknown field.
    """
    name = f"{resource.version[0].upper()}{resource.version[1:]}{resource.kind}"
    unknown = list(_unknown(_CLIENT_NAMES.get(name, name), item, ""))
    if unknown:
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise bad_request(
            f"{resource.kind} in version {resource.version!r} cannot be handled: strict decoding error: {listed}"
        )


def _unknown(kind: str, value: Any, at: str) -> Iterator[str]:
    if match := _LIST.match(kind):
        for index, element in enumerate(value if isinstance(value, list) else []):
            yield from _unknown(match[1], element, f"{at}[{index}]")
        return
    if match := _DICT.match(kind):
        for key, element in value.items() if isinstance(value, dict) else []:
            yield from _unknown(match[1] or match[2], element, f"{at}.{key}")
        return
    fields = _fields(kind)
    if fields is None or not isinstance(value, dict):
        return
    for key, element in value.items():
        path = f"{at}.{key}".lstrip(".")
        if key.startswith("$"):
            continue  # a directive of a strategic merge patch
        if key not in fields:
            yield path
        elif element is not None:
            yield from _unknown(fields[key], element, path)


@cache
def _fields(kind: str) -> dict[str, str] | None:
    """JSON names and types of a model's fields; None if `kind` is not a model."""
    from kubernetes.client import models  # noqa: PLC0415 - takes half a second, so only when needed

    model = getattr(models, kind, None)
    if model is None or not model.attribute_map:
        return None
    return {model.attribute_map[field]: type_ for field, type_ in model.openapi_types.items()}
