"""Parses a request's method, path and query, once for both authorization and dispatch.

The rules are those of Kubernetes' RequestInfo:
https://github.com/kubernetes/apiserver/blob/v0.34.0/pkg/endpoints/request/requestinfo.go.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..objects.resources import NAMESPACES, Resource, find
from ..objects.status import ApiError

VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
SUBRESOURCES_OF_NAMESPACES = ("status", "finalize")
ROOT_PARTS = {"api": 2, "apis": 3}
TARGET_PARTS = 3  # plural, name, subresource
_EXACT_NAME = re.compile(r"(?:^|,)\s*metadata\.name\s*==?\s*([^\s,!=]+)")


@dataclass(frozen=True)
class RequestInfo:
    """The verb and its target: a resource, or a path outside the API."""

    verb: str
    path: str
    root: str = ""
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    deeper: bool = False

    @property
    def is_resource(self) -> bool:
        """Whether the path names a resource."""
        return bool(self.root)


@dataclass(frozen=True)
class Target:
    """The kind, object and subresource that a URL names."""

    resource: Resource
    namespace: str
    name: str = ""
    part: str = ""


def wants_watch(query: Mapping[str, str]) -> bool:
    """Whether a GET of a collection is a watch."""
    return query.get("watch", "false").lower() not in ("false", "0")


def read(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """Parse a request."""
    parts = [part for part in path.split("/") if part]
    head = ROOT_PARTS.get(parts[0], 0) if parts else 0
    if not head or len(parts) <= head:
        return RequestInfo(method.lower(), path)
    root, rest, namespace = parts[:head], parts[head:], ""
    if rest[0] == NAMESPACES.plural and len(rest) > 1:
        namespace = rest[1]
        if len(rest) >= TARGET_PARTS and rest[2] not in SUBRESOURCES_OF_NAMESPACES:
            rest = rest[2:]
    plural, name, part = [*rest, "", ""][:TARGET_PARTS]
    verb = VERBS.get(method, "")
    if not name and verb == "get":
        verb = "watch" if wants_watch(query) else "list"
        exact = _EXACT_NAME.search(query.get("fieldSelector", ""))
        selected = exact[1] if exact else ""
    else:
        verb, selected = ("deletecollection" if verb == "delete" and not name else verb), ""
    return RequestInfo(
        verb,
        path,
        root="/".join(root),
        group=root[1] if root[0] == "apis" else "",
        resource=plural,
        namespace=namespace,
        name=name or selected,
        subresource=part,
        deeper=len(rest) > TARGET_PARTS,
    )


def target(info: RequestInfo) -> Target:
    """The kind and object that a request names.

    Raises:
        ApiError: 404, the server has no such kind or subresource.
    """
    resource = find(info.root, info.resource) if info.is_resource else None
    named = bool(info.name) and info.verb not in ("list", "watch")
    misplaced = resource is None or info.deeper or (resource.namespaced and named and not info.namespace)
    if resource is None or misplaced or (not resource.namespaced and info.namespace and resource is not NAMESPACES):
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    namespace = info.namespace if resource.namespaced else ""
    return Target(resource, namespace, info.name if named else "", info.subresource)
