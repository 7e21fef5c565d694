"""Tables for `kubectl get`: columns as kubectl users know them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from ..objects.resources import Object, Resource

MEDIA_TYPE = "as=Table"
Cells = Callable[[Object], list[Any]]
HOUR_S, MINUTE_S, DAY_S = 3600, 60, 86400


def table(resource: Resource, items: Sequence[Object], version: str, *, include: str = "Metadata") -> dict[str, Any]:
    """A Table of `items`; `include` is how much of each object its row contains."""
    columns, cells = _COLUMNS.get(resource.kind, (("Name", "Age"), lambda item: [_name(item), _age(item)]))
    rows = [{"cells": cells(item), "object": _partial(item, include)} for item in items]
    definitions = [
        {
            "name": name.lstrip("*"),
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": int(name.startswith("*")),
        }
        for name in columns
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": definitions,
        "rows": rows,
    }


def age(stamp: str | None) -> str:
    """The time since `stamp`, as kubectl writes it."""
    if not stamp:
        return "<unknown>"
    seconds = max(int((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds()), 0)
    if seconds < 2 * MINUTE_S:
        return f"{seconds}s"
    if seconds < 2 * HOUR_S:
        return f"{seconds // MINUTE_S}m"
    return f"{seconds // HOUR_S}h" if seconds < 2 * DAY_S else f"{seconds // DAY_S}d"


def _partial(item: Object, include: str) -> Object | None:
    if include == "Object":
        return item
    if include == "None":
        return None
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _age(item: Object) -> str:
    return age(item["metadata"].get("creationTimestamp"))


def _pod(item: Object) -> list[Any]:
    status, spec = item["status"], item["spec"]
    containers = status.get("containerStatuses") or []
    ready = f"{sum(one['ready'] for one in containers)}/{len(spec['containers'])}"
    restarts = sum(one["restartCount"] for one in containers)
    ip = status.get("podIP") or "<none>"
    node = spec.get("nodeName") or "<none>"
    return [_name(item), ready, pod_reason(item), str(restarts), _age(item), ip, node]


def pod_reason(pod: Object) -> str:
    """The STATUS column."""
    status = pod["status"]
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    initial = status.get("initContainerStatuses") or []
    for index, one in enumerate(initial):
        state = one["state"]
        if state.get("terminated", {}).get("exitCode") == 0:
            continue
        why = state.get("terminated", {}).get("reason") or state.get("waiting", {}).get("reason")
        waits = why in (None, "PodInitializing")
        return f"Init:{index}/{len(initial)}" if waits else f"Init:{why}"
    reason = status.get("reason") or status.get("phase", "Pending")
    for one in reversed(status.get("containerStatuses") or []):
        for kind in ("waiting", "terminated"):
            reason = one["state"].get(kind, {}).get("reason") or reason if not status.get("reason") else reason
    return str(reason)


def _deployment(item: Object) -> list[Any]:
    status, replicas = item.get("status") or {}, item["spec"]["replicas"]
    ready = f"{status.get('readyReplicas', 0)}/{replicas}"
    counts = [str(status.get(name, 0)) for name in ("updatedReplicas", "availableReplicas")]
    return [_name(item), ready, *counts, _age(item), *_template(item)]


def _template(item: Object) -> list[str]:
    containers = item["spec"]["template"]["spec"]["containers"]
    names, images = (",".join(one[field] for one in containers) for field in ("name", "image"))
    return [names, images, _labels(item["spec"]["selector"].get("matchLabels"))]


def _replica_set(item: Object) -> list[Any]:
    status = item.get("status") or {}
    counts = [item["spec"]["replicas"], status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(item), *map(str, counts), _age(item), *_template(item)]


def _service(item: Object) -> list[Any]:
    spec = item["spec"]
    ports = ",".join(f"{port['port']}/{port['protocol']}" for port in spec.get("ports") or []) or "<none>"
    outside = spec.get("externalName") or ("<pending>" if spec["type"] == "LoadBalancer" else "<none>")
    ip = spec.get("clusterIP") or "<none>"
    return [_name(item), spec["type"], ip, outside, ports, _age(item), _labels(spec.get("selector"))]


def _endpoints(item: Object) -> list[Any]:
    addresses = [
        f"{address['ip']}:{port['port']}"
        for subset in item.get("subsets") or []
        for address in subset.get("addresses") or []
        for port in subset.get("ports") or []
    ]
    return [_name(item), ",".join(addresses) or "<none>", _age(item)]


def _slice(item: Object) -> list[Any]:
    addresses = [address for one in item.get("endpoints") or [] for address in one["addresses"]]
    ports = ",".join(str(port["port"]) for port in item.get("ports") or [])
    return [_name(item), item["addressType"], ports or "<unset>", ",".join(addresses) or "<unset>", _age(item)]


def _event(item: Object) -> list[Any]:
    about = item.get("involvedObject", {})
    what = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    return [age(item.get("lastTimestamp")), item.get("type"), item.get("reason"), what, item.get("message")]


def _node(item: Object) -> list[Any]:
    return [_name(item), "Ready", "<none>", _age(item), item["status"]["nodeInfo"]["kubeletVersion"]]


def _lease(item: Object) -> list[Any]:
    return [_name(item), (item.get("spec") or {}).get("holderIdentity", ""), _age(item)]


def _labels(labels: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


_WIDE = ("*Containers", "*Images", "*Selector")
_COLUMNS: dict[str, tuple[tuple[str, ...], Cells]] = {
    "Pod": (("Name", "Ready", "Status", "Restarts", "Age", "*IP", "*Node"), _pod),
    "Deployment": (("Name", "Ready", "Up-to-date", "Available", "Age", *_WIDE), _deployment),
    "ReplicaSet": (("Name", "Desired", "Current", "Ready", "Age", *_WIDE), _replica_set),
    "Service": (("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "*Selector"), _service),
    "Endpoints": (("Name", "Endpoints", "Age"), _endpoints),
    "EndpointSlice": (("Name", "AddressType", "Ports", "Endpoints", "Age"), _slice),
    "Event": (("Last Seen", "Type", "Reason", "Object", "Message"), _event),
    "Node": (("Name", "Status", "Roles", "Age", "Version"), _node),
    "Lease": (("Name", "Holder", "Age"), _lease),
    "Namespace": (("Name", "Status", "Age"), lambda item: [_name(item), item["status"]["phase"], _age(item)]),
    "ConfigMap": (
        ("Name", "Data", "Age"),
        lambda item: [_name(item), str(len(item.get("data") or {}) + len(item.get("binaryData") or {})), _age(item)],
    ),
    "Secret": (
        ("Name", "Type", "Data", "Age"),
        lambda item: [_name(item), item.get("type"), str(len(item.get("data") or {})), _age(item)],
    ),
    "PersistentVolumeClaim": (
        ("Name", "Status", "Volume", "Age"),
        lambda item: [_name(item), item["status"]["phase"], item["spec"].get("volumeName"), _age(item)],
    ),
}
