"""Which routes a Gateway's listeners take, and in which order their rules are tried. Pure.

Order: https://gateway-api.sigs.k8s.io/reference/spec/#httprouterule
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..objects.resources import GRPC_ROUTES, HTTP_ROUTES, Object
from ..objects.selectors import matches_spec

ANY_HOST = "*"
KINDS = {HTTP_ROUTES.kind, GRPC_ROUTES.kind}


@dataclass(frozen=True)
class Attached:
    """A route at one listener of a Gateway, and the hosts for which it is there."""

    route: Object
    parent: dict[str, Any]
    gateway: Object
    listener: dict[str, Any]
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Refused:
    """Why no listener of a parent takes a route: a reason and a message of its condition Accepted."""

    reason: str
    message: str


def attach(
    route: Object, parent: dict[str, Any], gateway: Object, labels_of: Callable[[str], dict[str, str]]
) -> list[Attached] | Refused:
    """The listeners of a Gateway that take a route by one of its parentRefs; `labels_of` gives a namespace's labels."""
    listeners = [one for one in gateway["spec"]["listeners"] if _is_meant(parent, one)]
    if not listeners:
        return Refused("NoMatchingParent", "the Gateway has no listener of this name or port")
    allowed = [one for one in listeners if _is_allowed(route, gateway, one, labels_of)]
    if not allowed:
        return Refused("NotAllowedByListeners", "allowedRoutes of the listener does not admit the route's namespace")
    found = [Attached(route, parent, gateway, one, _hosts(route, one)) for one in allowed]
    found = [one for one in found if one.hosts]
    return found or Refused("NoMatchingListenerHostname", "no hostname of the route is one of the listener")


def rules(attached: list[Attached]) -> Iterator[tuple[Attached, dict[str, Any], dict[str, Any]]]:
    """Yield each match of each rule, the most specific one first: route, rule, match."""
    every = [
        (one, rule, match)
        for one in sorted(attached, key=lambda one: (one.route["metadata"]["creationTimestamp"], _name(one.route)))
        for rule in one.route["spec"].get("rules") or [{}]
        for match in rule.get("matches") or [{}]
    ]
    return iter(sorted(every, key=lambda item: _specificity(item[2]), reverse=True))


def backends(rule: dict[str, Any]) -> list[dict[str, Any]]:
    """Every Service that a rule names, mirrors included."""
    mirrors = [each["requestMirror"]["backendRef"] for each in rule.get("filters") or []]
    return [*(rule.get("backendRefs") or []), *mirrors]


def _is_meant(parent: dict[str, Any], listener: dict[str, Any]) -> bool:
    by_name = parent.get("sectionName") in {None, listener["name"]}
    return by_name and parent.get("port") in {None, listener["port"]}


def _is_allowed(
    route: Object, gateway: Object, listener: dict[str, Any], labels_of: Callable[[str], dict[str, str]]
) -> bool:
    namespaces, namespace = listener["allowedRoutes"]["namespaces"], route["metadata"]["namespace"]
    if namespaces["from"] == "Same":
        return bool(namespace == gateway["metadata"]["namespace"])
    return namespaces["from"] == "All" or matches_spec(namespaces.get("selector"), labels_of(namespace))


def _hosts(route: Object, listener: dict[str, Any]) -> tuple[str, ...]:
    wanted, own = route["spec"].get("hostnames") or [], listener.get("hostname")
    if not wanted:
        return (own or ANY_HOST,)
    return tuple(host for host in wanted if own is None or _covers(own, host))


def _covers(listener: str, host: str) -> bool:
    return listener == host or (listener.startswith("*.") and host.endswith(listener[1:]))


def _specificity(match: dict[str, Any]) -> tuple[Any, ...]:
    path, method = match.get("path") or {}, match.get("method")
    if isinstance(method, dict):  # of a GRPCRoute
        return (False, len(method.get("service", "")), len(method.get("method", "")), len(match.get("headers") or []))
    exact = path.get("type") == "Exact"
    return (exact, len(path.get("value", "")), method is not None, len(match.get("headers") or []))


def _name(route: Object) -> str:
    return f"{route['metadata']['namespace']}/{route['metadata']['name']}"
