"""What the cluster's gateway reports about Gateways and routes, as the conditions of the Gateway API. Pure."""

from collections.abc import Iterable
from typing import Any

from ..objects.resources import Object
from ..objects.store import now
from .gateway_routes import KINDS, Attached, Refused

CONTROLLER = "embedded.cluster/gateway"


def condition(kind: str, item: Object, reason: str, message: str = "", *, good: bool = True) -> dict[str, Any]:
    """One condition about the newest generation of an object."""
    return {
        "type": kind,
        "status": "True" if good else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": item["metadata"]["generation"],
        "lastTransitionTime": now(),
    }


def of_parent(route: Object, parent: dict[str, Any], outcome: list[Attached] | Refused, missing: Iterable[str]) -> Any:
    """The status of a route at one of its parents; `missing` are the Services that it names and nobody has."""
    gone = ", ".join(missing)
    conditions = [
        condition("Accepted", route, outcome.reason, outcome.message, good=False)
        if isinstance(outcome, Refused)
        else condition("Accepted", route, "Accepted"),
        condition("ResolvedRefs", route, "BackendNotFound", f"there is no Service {gone}", good=False)
        if gone
        else condition("ResolvedRefs", route, "ResolvedRefs"),
    ]
    return {"parentRef": parent, "controllerName": CONTROLLER, "conditions": conditions}


def of_gateway(gateway: Object, address: str, counts: dict[str, int], problems: dict[int, str]) -> dict[str, Any]:
    """The status of a Gateway.

    Args:
        gateway: the object.
        address: where its listeners are.
        counts: routes by the name of a listener.
        problems: why a port cannot be opened.
    """
    listeners = [
        {
            "name": one["name"],
            "attachedRoutes": counts.get(one["name"], 0),
            "supportedKinds": [{"group": "gateway.networking.k8s.io", "kind": kind} for kind in sorted(KINDS)],
            "conditions": [
                condition("Accepted", gateway, "Accepted"),
                condition("ResolvedRefs", gateway, "ResolvedRefs"),
                _programmed(gateway, problems.get(one["port"])),
            ],
        }
        for one in gateway["spec"]["listeners"]
    ]
    broken = next((problems[one["port"]] for one in gateway["spec"]["listeners"] if one["port"] in problems), None)
    return {
        "addresses": [{"type": "IPAddress", "value": address}],
        "conditions": [condition("Accepted", gateway, "Accepted"), _programmed(gateway, broken)],
        "listeners": listeners,
    }


def is_news(before: Any, after: Any) -> bool:
    """Whether a status says something else, apart from when."""
    return bool(_timeless(before) != _timeless(after))


def _programmed(gateway: Object, problem: str | None) -> dict[str, Any]:
    if problem is None:
        return condition("Programmed", gateway, "Programmed")
    return condition("Programmed", gateway, "Invalid", problem, good=False)


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key != "lastTransitionTime"}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value
