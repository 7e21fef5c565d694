"""Chooses how a request reaches a Service's pods from outside the cluster. Pure: it reads objects and does no I/O.

The Service's external address is used if it has one; otherwise a port of a ready pod is forwarded. The pod's port is
the one that the EndpointSlices name for the Service's port; it is never guessed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from slipway.tasks.contracts.errors import InputError

PORT_NAME = "http"
DEFAULT_PORT = 8000
"""Triton's HTTP port."""

Document = dict[str, Any]


@dataclass(frozen=True)
class Direct:
    """An address that this machine can connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class ThroughPod:
    """A port of a pod, forwarded by the Kubernetes API."""

    pod: str
    port: int

    def __str__(self) -> str:
        return f"pod {self.pod}"


def external(service: Document) -> Direct | None:
    """Return the external address of a Service of type LoadBalancer; None if it has none."""
    if service["spec"].get("type") != "LoadBalancer":
        return None
    entries = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    hosts = [host for entry in entries if (host := entry.get("hostname") or entry.get("ip"))]
    return Direct(_text(hosts[0]), int(_port(service)["port"])) if hosts else None


def through_pod(service: Document, slices: Sequence[Document]) -> ThroughPod | None:
    """The first ready pod of a Service; None if no pod is ready."""
    name = _port(service).get("name") or ""
    for item in slices:
        number = next((port["port"] for port in item.get("ports") or [] if (port.get("name") or "") == name), None)
        for endpoint in item.get("endpoints") or []:
            # a missing condition means ready: https://kubernetes.io/docs/concepts/services-networking/endpoint-slices
            ready = (endpoint.get("conditions") or {}).get("ready") is not False
            target = endpoint.get("targetRef") or {}
            if number and ready and target.get("kind") == "Pod":
                return ThroughPod(_text(target["name"]), int(number))
    return None


def given(host: str) -> Direct:
    """Parse the option --host: HOST or HOST:PORT.

    Raises:
        InputError: it is neither.
    """
    try:
        parts = urlsplit(f"//{host}")
        if parts.hostname and parts.netloc == host and not parts.username:
            return Direct(parts.hostname, parts.port or DEFAULT_PORT)
    except ValueError:
        pass
    raise InputError(
        "--host is not an address", found=repr(host), expected="HOST or HOST:PORT, such as 127.0.0.1:8000 or [::1]:8000"
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where text belongs")
    return value


def _port(service: Document) -> Document:
    ports: list[Document] = service["spec"].get("ports") or []
    http_port = next((port for port in ports if port.get("name") == PORT_NAME), None)
    if http_port is None:
        raise InputError(
            f"Service {service['metadata']['name']} has no port named {PORT_NAME}",
            found=", ".join(str(port.get("name") or port["port"]) for port in ports) or "no port",
            remedy="Name a Service that Slipway created.",
        )
    return http_port
