"""Documents that clients read first: versions, groups, resources, and the part of OpenAPI that kubectl apply needs."""

from collections.abc import Callable
from typing import Any

from ..node.node import VERSION
from ..objects.resources import ALL_VERBS, RESOURCES, Resource

STATUS_VERBS = ("get", "patch", "update")


def version() -> dict[str, Any]:
    """`/version`."""
    major, minor, _ = VERSION.removeprefix("v").split(".")
    return {"major": major, "minor": minor, "gitVersion": VERSION, "platform": "linux/amd64", "compiler": "cpython"}


def core_versions() -> dict[str, Any]:
    """`/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups() -> dict[str, Any]:
    """`/apis`."""
    pairs = sorted({(resource.group, resource.version) for resource in RESOURCES if resource.group})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*pair) for pair in pairs]}


def group(name: str) -> dict[str, Any] | None:
    """`/apis/<name>`; None when there is no such group."""
    return next((each for each in groups()["groups"] if each["name"] == name), None)


def resources(path: str) -> dict[str, Any] | None:
    """`/api/v1`, `/apis/<group>/<version>`; None when there is no such version."""
    matches = [resource for resource in RESOURCES if resource.path == path]
    if not matches:
        return None
    listed = [entry for resource in matches for entry in _entries(resource)]
    api_version = matches[0].api_version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": listed}


def openapi_paths() -> dict[str, Any]:
    """`/openapi/v3`."""
    paths = sorted({resource.path for resource in RESOURCES})
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def openapi(path: str) -> dict[str, Any]:
    """`/openapi/v3/<path>`: states only that PATCH accepts fieldValidation, which kubectl checks."""
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("fieldValidation", "dryRun")]
    operations = {}
    for resource in RESOURCES:
        if resource.path == path:
            kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
            patch = {
                "operationId": f"patch{resource.kind}",
                "parameters": parameters,
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": kind,
            }
            namespace = "namespaces/{namespace}/" if resource.namespaced else ""
            operations[f"/{path}/{namespace}{resource.plural}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION}, "paths": operations}


def openapi_v2() -> dict[str, Any]:
    """`/openapi/v2`: clients that know version 3 do not read it."""
    return {"swagger": "2.0", "info": {"title": "Kubernetes", "version": VERSION}, "paths": {}}


FIXED_DOCUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "/version": version,
    "/api": core_versions,
    "/apis": groups,
    "/openapi/v3": openapi_paths,
    "/openapi/v2": openapi_v2,
}


def document(path: str) -> dict[str, Any] | None:
    """The fixed document at `path`; None if there is none."""
    parts = path.strip("/").split("/")
    match parts:
        case ["apis", name]:
            return group(name)
        case ["api", _] | ["apis", _, _]:
            return resources("/".join(parts))
        case ["openapi", "v3", *rest] if rest:
            return openapi("/".join(rest))
        case _:
            fixed = FIXED_DOCUMENTS.get(path)
            return fixed() if fixed else None


def _group(name: str, version: str) -> dict[str, Any]:
    entry = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [entry], "preferredVersion": entry}


def _entries(resource: Resource) -> list[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(ALL_VERBS),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.in_all:
        entry["categories"] = ["all"]
    below = {"namespaced": resource.namespaced, "singularName": "", "verbs": list(STATUS_VERBS)}
    entries = [entry]
    if resource.has_status:
        entries.append(below | {"name": f"{resource.plural}/status", "kind": resource.kind})
    if resource.has_scale:
        scale = {"name": f"{resource.plural}/scale", "kind": "Scale", "group": "autoscaling", "version": "v1"}
        entries.append(below | scale)
    if resource.plural == "pods":
        entries.append(below | {"name": "pods/log", "kind": "Pod", "verbs": ["get"]})
        entries.append(
            below | {"name": "pods/portforward", "kind": "PodPortForwardOptions", "verbs": ["create", "get"]}
        )
    if resource.plural == "serviceaccounts":
        token = {"kind": "TokenRequest", "group": "authentication.k8s.io", "version": "v1", "verbs": ["create"]}
        entries.append(below | {"name": "serviceaccounts/token"} | token)
    return entries
