"""The three kinds of patches: JSON merge (RFC 7386), JSON patch (RFC 6902) and Kubernetes' strategic merge.

Merge keys are those of the Kubernetes 1.32 API types
(https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/).
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from .status import ApiError, bad_request

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

MERGE_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "ports": ("containerPort", "port"),
    "topologySpreadConstraints": ("topologyKey",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "addresses": ("type",),
    "secrets": ("name",),
}
MERGED_SETS = ("finalizers",)
_DIRECTIVES = ("$patch", "$retainKeys")


def apply(content_type: str, target: Any, patch: Any) -> Any:
    """A patched copy of `target`.

    Raises:
        ApiError: 400 or 422, the patch cannot be applied; 415 for another content type.
    """
    kinds: dict[str, Callable[[Any, Any], Any]] = {
        MERGE: merge,
        STRATEGIC: strategic,
        APPLY: strategic,
        JSON: json_patch,
    }
    if content_type not in kinds:
        message = f"the body of the request was in an unknown format: {content_type or 'none given'}"
        raise ApiError(415, "UnsupportedMediaType", message)
    return kinds[content_type](target, patch)


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any) -> Any:
    """Like merge, but lists whose elements have a key merge by it, and `$` directives apply."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "delete":
        return {}
    if patch.get("$patch") == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key not in _DIRECTIVES}
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _merge_list(key, result.get(key), value, patch.get(f"$setElementOrder/{key}"))
        else:
            result[key] = strategic(result.get(key), value)
    _remove_primitives(result, patch)
    _order_untouched(result, patch)
    return result


def _remove_primitives(result: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for directive, values in patch.items():
        if directive.startswith("$deleteFromPrimitiveList/"):
            key = directive.partition("/")[2]
            result[key] = [value for value in result.get(key) or [] if value not in values]


def _order_untouched(result: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for directive, order in patch.items():
        key = directive.partition("/")[2]
        if directive.startswith("$setElementOrder/") and key not in patch and isinstance(result.get(key), list):
            result[key] = _ordered(result[key], order, _merge_key(key, result[key]))


def _merge_list(name: str, target: Any, patch: list[Any], order: list[Any] | None) -> list[Any]:
    old = target if isinstance(target, list) else []
    if name in MERGED_SETS:
        return old + [value for value in patch if value not in old]
    if name in MERGE_KEYS and not patch:
        return old
    key = _merge_key(name, patch)
    if key is None:
        return copy.deepcopy(patch)
    if any(isinstance(element, dict) and element.get("$patch") == "replace" for element in patch):
        return [copy.deepcopy(element) for element in patch if "$patch" not in element]
    result = list(old)
    for element in patch:
        at = next((index for index, there in enumerate(result) if there.get(key) == element.get(key)), None)
        if element.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(strategic({}, element))
        else:
            result[at] = strategic(result[at], element)
    return _ordered(result, order, key) if order else result


def _merge_key(name: str, elements: list[Any]) -> str | None:
    if not elements or not all(isinstance(element, dict) for element in elements):
        return None
    candidates = MERGE_KEYS.get(name, ())
    keyed = [element for element in elements if element.get("$patch") != "replace"]
    return next((key for key in candidates if all(key in element for element in keyed)), None)


def _ordered(elements: list[Any], order: list[Any], key: str | None) -> list[Any]:
    if key is None:
        return elements
    keys = [entry.get(key) if isinstance(entry, dict) else entry for entry in order]
    last = len(keys)
    rank = {value: index for index, value in enumerate(keys)}
    return sorted(elements, key=lambda element: rank.get(element.get(key), last))


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902: add, remove, replace, test, move and copy."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    document = copy.deepcopy(target)
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise bad_request(f"the server rejected our request: cannot apply {operation}: {error!r}") from error
    return document


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _set(document, path, copy.deepcopy(operation["value"]), insert=True)
        case "replace":
            _read(document, path)
            return _set(document, path, copy.deepcopy(operation["value"]), insert=False)
        case "remove":
            return _unset(document, path)
        case "test":
            if _read(document, path) != operation["value"]:
                raise ValueError(f"{operation['path']} is {_read(document, path)!r}")
            return document
        case "copy" | "move" as kind:
            origin = _pointer(operation["from"])
            value = copy.deepcopy(_read(document, origin))
            kept = _unset(document, origin) if kind == "move" else document
            return _set(kept, path, value, insert=True)
        case other:
            raise ValueError(f"unknown operation {other}")


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _read(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _set(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    parent, last = _read(document, path[:-1]), path[-1]
    if not isinstance(parent, list):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    elif insert:
        if int(last) > len(parent):
            raise IndexError(last)
        parent.insert(int(last), value)
    else:
        parent[int(last)] = value
    return document


def _unset(document: Any, path: list[str]) -> Any:
    parent, last = _read(document, path[:-1]), path[-1]
    del parent[int(last) if isinstance(parent, list) else last]
    return document
