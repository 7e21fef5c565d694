"""What clients ask first: versions, groups, resources and the part of OpenAPI that kubectl apply looks at."""

from typing import Any

from local.cluster.node import VERSION
from local.cluster.resources import ALL_VERBS, RESOURCES, Resource

STATUS_VERBS = ("get", "patch", "update")


def version() -> dict[str, Any]:
    """`/version`."""
    major, minor, _ = VERSION.removeprefix("v").split(".")
    return {"major": major, "minor": minor, "gitVersion": VERSION, "platform": "linux/amd64", "compiler": "slipway"}


def core_versions() -> dict[str, Any]:
    """`/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups() -> dict[str, Any]:
    """`/apis`."""
    pairs = sorted({(resource.group, resource.version) for resource in RESOURCES if resource.group})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*pair) for pair in pairs]}


def group(name: str) -> dict[str, Any] | None:
    """`/apis/<name>`; None when there is no such group."""
    return next((found for found in groups()["groups"] if found["name"] == name), None)


def resources(path: str) -> dict[str, Any] | None:
    """`/api/v1`, `/apis/<group>/<version>`; None when there is no such version."""
    found = [resource for resource in RESOURCES if resource.path == path]
    if not found:
        return None
    listed = [entry for resource in found for entry in _entries(resource)]
    api_version = found[0].api_version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": listed}


def openapi_paths() -> dict[str, Any]:
    """`/openapi/v3`."""
    paths = sorted({resource.path for resource in RESOURCES})
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def openapi(path: str) -> dict[str, Any]:
    """`/openapi/v3/<path>`: only that PATCH takes fieldValidation, which is what kubectl looks for."""
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
    return {"openapi": "3.0.0", "info": {"title": "Slipway", "version": VERSION}, "paths": operations}


def openapi_v2() -> dict[str, Any]:
    """`/openapi/v2`: clients that know version 3 do not read it."""
    return {"swagger": "2.0", "info": {"title": "Slipway", "version": VERSION}, "paths": {}}


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
    return entries
