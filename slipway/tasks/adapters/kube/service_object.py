"""Reads Kubernetes Services and their EndpointSlices: the address of a Service, and the pods behind it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from slipway.tasks.contracts.errors import UnavailableError

Document = dict[str, Any]
"""A Service or an EndpointSlice as JSON."""


@dataclass(frozen=True)
class ServiceAddress:
    """The address of a Service: its IP address within the cluster, its ports by name, and a key for its pods."""

    host: str
    ports: dict[str, int]
    api_key: str = field(default="", repr=False)


def address_of(service: Document, api_key: str = "") -> ServiceAddress:
    """The address of a Service, with the key that its pods ask for.

    Raises:
        UnavailableError: it has none yet.
    """
    host = service["spec"].get("clusterIP")
    if not host or host == "None":
        metadata = service["metadata"]
        raise UnavailableError(
            f"Service {metadata['namespace']}/{metadata['name']} has no address in the cluster", expected="a ClusterIP"
        )
    ports = {port.get("name") or str(port["port"]): int(port["port"]) for port in service["spec"]["ports"]}
    return ServiceAddress(host, ports, api_key)


def ready_pods(slices: Iterable[Document]) -> set[str]:
    """Names of the pods that a Service's EndpointSlices list as ready."""
    return {
        endpoint["targetRef"]["name"]
        for item in slices
        for endpoint in item.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False and endpoint.get("targetRef")
    }
