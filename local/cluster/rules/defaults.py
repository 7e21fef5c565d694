"""Defaults that the API server writes into objects, limited to those that this package or a client reads."""

import base64
from typing import Any

from ..objects import gateway_api
from ..objects.resources import (
    CLAIMS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    ROUTED,
    SECRETS,
    SERVICES,
    Object,
    Resource,
)
from ..objects.store import now


def fill(resource: Resource, item: Object) -> None:
    """Complete `item` in place."""
    fillers = {
        PODS.kind: _pod,
        SERVICES.kind: _service,
        DEPLOYMENTS.kind: _deployment,
        REPLICA_SETS.kind: _replica_set,
        SECRETS.kind: _secret,
        NAMESPACES.kind: _namespace,
        CLAIMS.kind: _claim,
        CONFIG_MAPS.kind: _config_map,
        EVENTS.kind: _event,
    }
    if resource.kind in fillers:
        fillers[resource.kind](item)
    elif resource in ROUTED:
        gateway_api.fill(resource, item)


def _pod(item: Object) -> None:
    pod_spec(item["spec"])
    for container in [*(item["spec"].get("containers") or []), *(item["spec"].get("initContainers") or [])]:
        resources = container["resources"]
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    item.setdefault("status", {"phase": "Pending", "qosClass": "BestEffort"})


def pod_spec(spec: dict[str, Any]) -> None:
    """Defaults of a pod's or template's spec."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        tag = container.get("image", "").rpartition(":")[2]
        container.setdefault("imagePullPolicy", "Always" if tag == "latest" else "IfNotPresent")
        for port in container.get("ports") or []:
            port.setdefault("protocol", "TCP")


def _service(item: Object) -> None:
    spec = item["spec"]
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    item.setdefault("status", {"loadBalancer": {}})


def _deployment(item: Object) -> None:
    spec = item["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.get("rollingUpdate") or {}
        strategy["rollingUpdate"] = {"maxSurge": "25%", "maxUnavailable": "25%"} | rolling
    _template(spec)
    item.setdefault("status", {})


def _replica_set(item: Object) -> None:
    item["spec"].setdefault("replicas", 1)
    _template(item["spec"])
    item.setdefault("status", {"replicas": 0})


def _template(spec: dict[str, Any]) -> None:
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        pod_spec(template["spec"])


def _secret(item: Object) -> None:
    data = item.setdefault("data", {}) or {}
    for name, text in (item.pop("stringData", None) or {}).items():
        data[name] = base64.b64encode(text.encode()).decode()
    item["data"] = data
    item.setdefault("type", "Opaque")


def _config_map(item: Object) -> None:
    item.setdefault("data", {})


def _namespace(item: Object) -> None:
    item.setdefault("spec", {"finalizers": ["kubernetes"]})
    item.setdefault("status", {"phase": "Active"})
    labels = item["metadata"].get("labels") or {}
    item["metadata"]["labels"] = labels | {"kubernetes.io/metadata.name": item["metadata"]["name"]}


def _claim(item: Object) -> None:
    spec = item["spec"]
    spec.setdefault("volumeMode", "Filesystem")
    storage = (spec.get("resources") or {}).get("requests", {})
    item["status"] = {"phase": "Bound", "accessModes": spec.get("accessModes", []), "capacity": storage}
    spec.setdefault("volumeName", f"local-{item['metadata']['name']}")


def _event(item: Object) -> None:
    item.setdefault("firstTimestamp", now())
    item.setdefault("lastTimestamp", item["firstTimestamp"])
    item.setdefault("count", 1)
