"""Endpoints and EndpointSlices: the pods behind each Service. Every change is followed at once."""

import hashlib
from collections.abc import Mapping
from typing import Any

from ..node.pod_status import FINAL_PHASES
from ..objects.resources import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES, Object, Resource
from ..objects.store import Change, Store, key_of

SERVICE_LABEL = "kubernetes.io/service-name"
MANAGED_LABEL = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"


class EndpointWriter:
    """Keeps both kinds up to date with the pods that each selector matches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.subscribe(self._changed)

    def start(self) -> None:
        """Bring every Service up to date."""
        for service in self._store.all(SERVICES):
            self._write(service)

    def _changed(self, change: Change) -> None:
        if change.resource is SERVICES:
            if change.new is None:
                self._remove(change.object)
            else:
                self._write(change.new)
        elif change.resource is PODS and _visible(change.old) != _visible(change.new):
            for service in self._store.all(SERVICES, change.object["metadata"]["namespace"]):
                self._write(service)

    def _write(self, service: Object) -> None:
        selector = service["spec"].get("selector")
        if not selector or service["spec"].get("type") == "ExternalName":
            return
        namespace, name = key_of(service)
        always = service["spec"].get("publishNotReadyAddresses", False)
        pods = [pod for pod in self._store.all(PODS, namespace) if _selected(pod, selector)]
        listed = [pod for pod in pods if always or not _terminating(pod)]
        ready = [pod for pod in listed if always or _serving(pod)]
        unready = [pod for pod in listed if pod not in ready]
        meta = {"name": name, "namespace": namespace, "labels": dict(service["metadata"].get("labels") or {})}
        endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": meta}
        self._put(ENDPOINTS, endpoints | {"subsets": _subsets(service, ready, unready)})
        self._put(ENDPOINT_SLICES, _slice(service, ready, [pod for pod in pods if pod not in ready]))
        for old in slices(self._store, service):
            if key_of(old)[1] != slice_name(service) and old["metadata"]["labels"].get(MANAGED_LABEL) == MANAGER:
                self._store.remove(ENDPOINT_SLICES, *key_of(old))

    def _put(self, resource: Resource, item: Object) -> None:
        old = self._store.get(resource, *key_of(item))
        if old is None:
            self._store.create(resource, item)
        else:
            self._store.update(resource, item)

    def _remove(self, service: Object) -> None:
        namespace, name = key_of(service)
        for resource, its_name in ((ENDPOINTS, name), (ENDPOINT_SLICES, slice_name(service))):
            if self._store.get(resource, namespace, its_name) is not None:
                self._store.remove(resource, namespace, its_name)


def slices(store: Store, service: Object) -> list[Object]:
    """All EndpointSlices of a Service, whoever created them."""
    namespace, name = key_of(service)
    endpoint_slices = store.all(ENDPOINT_SLICES, namespace)
    return [one for one in endpoint_slices if (one["metadata"].get("labels") or {}).get(SERVICE_LABEL) == name]


def slice_name(service: Object) -> str:
    """The Service's name with a suffix that cannot be guessed from it, as real slices have."""
    suffix = hashlib.sha256(service["metadata"]["uid"].encode()).hexdigest()[:5]
    return f"{service['metadata']['name']}-{suffix}"


def _serving(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(known["type"] == "Ready" and known["status"] == "True" for known in conditions)


def _terminating(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def target_port(port: Mapping[str, Any], pod: Object) -> int | None:
    """The port of `pod` that a Service's port targets; None if the pod has no port of that name."""
    target = port.get("targetPort", port["port"])
    if isinstance(target, int) or str(target).isdigit():
        return int(target)
    ports = [named for container in pod["spec"]["containers"] for named in container.get("ports") or []]
    return next((named["containerPort"] for named in ports if named.get("name") == target), None)


def _selected(pod: Object, selector: Mapping[str, str]) -> bool:
    labels = pod["metadata"].get("labels") or {}
    lives = bool(pod["status"].get("podIP")) and pod["status"].get("phase") not in FINAL_PHASES
    return lives and all(labels.get(key) == value for key, value in selector.items())


def _visible(pod: Object | None) -> Any:
    if pod is None:
        return None
    status = pod["status"]
    final = status.get("phase") in FINAL_PHASES
    return (
        _serving(pod),
        final,
        status.get("podIP"),
        pod["metadata"].get("labels"),
        _terminating(pod),
    )


def _subsets(service: Object, ready: list[Object], unready: list[Object]) -> list[dict[str, Any]]:
    """One subset per set of port numbers, because pods may give a port's name different numbers."""
    groups: dict[tuple[int | None, ...], dict[str, list[Any]]] = {}
    for part, pods in (("addresses", ready), ("notReadyAddresses", unready)):
        for pod in pods:
            numbers = tuple(target_port(port, pod) for port in service["spec"].get("ports") or [])
            groups.setdefault(numbers, {}).setdefault(part, []).append(_address(pod))
    return [
        addresses | {"ports": ports} for numbers, addresses in groups.items() if (ports := _ports(service, numbers))
    ]


def _ports(service: Object, numbers: tuple[int | None, ...]) -> list[dict[str, Any]]:
    pairs = zip(service["spec"].get("ports") or [], numbers, strict=True)
    return [
        {"port": number, "protocol": "TCP"} | ({"name": port["name"]} if port.get("name") else {})
        for port, number in pairs
        if number is not None
    ]


def _address(pod: Object) -> dict[str, Any]:
    reference = _reference(pod)
    return {"ip": pod["status"]["podIP"], "nodeName": pod["spec"].get("nodeName"), "targetRef": reference}


def _reference(pod: Object) -> dict[str, str]:
    meta = pod["metadata"]
    return {"kind": "Pod", "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}


def _slice(service: Object, ready: list[Object], unready: list[Object]) -> Object:
    namespace, name = key_of(service)
    pods = [*ready, *unready]
    numbers = [
        next((number for pod in pods if (number := target_port(port, pod)) is not None), None)
        for port in service["spec"].get("ports") or []
    ]
    endpoints = [
        {
            "addresses": [pod["status"]["podIP"]],
            "conditions": {"ready": pod in ready, "serving": _serving(pod), "terminating": _terminating(pod)},
            "nodeName": pod["spec"].get("nodeName"),
            "targetRef": _reference(pod),
        }
        for pod in pods
    ]
    owner = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": service["metadata"]["uid"]}
    labels = {SERVICE_LABEL: name, MANAGED_LABEL: MANAGER}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": slice_name(service),
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": _ports(service, tuple(numbers)),
    }
