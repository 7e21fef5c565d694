"""JSON Merge Patch (RFC 7396): what applies one, and what finds the one between two documents. Pure."""

from collections.abc import Mapping
from typing import Any


def merged(document: Any, change: Any) -> Any:
    """The document after a patch: null removes a field, and a list replaces one."""
    if not isinstance(change, dict):
        return change
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def patch_between(document: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that makes `target` of the document; no patch can write a null, so a null is as no field."""
    patch: dict[str, Any] = {key: None for key in document if key not in target}
    for key, value in target.items():
        old = document.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := patch_between(old, value):
                patch[key] = inner
        elif value != old:
            patch[key] = value
    return patch
