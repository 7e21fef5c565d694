"""LimitRange admission: default requests and limits for containers, and bounds on them.

Rules and messages: https://github.com/kubernetes/kubernetes/blob/v1.34.0/plugin/pkg/admission/limitranger/admission.go.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ..objects.quantities import canonical, pod_amounts, quantity
from ..objects.resources import LIMIT_RANGES, PODS, Object
from ..objects.status import forbidden
from ..objects.store import Store

ENFORCED_TYPES = ("Container", "Pod")
ANNOTATION = "kubernetes.io/limit-ranger"


def fill(store: Store, pod: Object) -> None:
    """Apply the defaults of the namespace's limit ranges to the pod, in place, and record them in an annotation."""
    notes = []
    for limits in store.all(LIMIT_RANGES, pod["metadata"]["namespace"]):
        requests, bounds = _defaults(limits)
        for kind, word in (("containers", "container"), ("initContainers", "init container")):
            for container in pod["spec"].get(kind) or []:
                resources = container["resources"]
                for part, defaults in (("requests", requests), ("limits", bounds)):
                    missing = {name: text for name, text in defaults.items() if name not in (resources.get(part) or {})}
                    if missing:
                        resources[part] = (resources.get(part) or {}) | missing
                        notes.append(f"{', '.join(sorted(missing))} {part[:-1]} for {word} {container['name']}")
    if notes:
        annotations = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = annotations | {ANNOTATION: f"LimitRanger plugin set: {'; '.join(notes)}"}


def check(store: Store, pod: Object) -> None:
    """Refuse a pod outside the bounds.

    Raises:
        ApiError: 403, listing every bound that the pod violates.
    """
    for limits in store.all(LIMIT_RANGES, pod["metadata"]["namespace"]):
        problems = list(dict.fromkeys(_problems(limits, pod["spec"])))
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise forbidden(PODS, pod["metadata"]["name"], text)


def spec_problems(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Parts of a LimitRange that this cluster cannot enforce."""
    for index, limit in enumerate(spec.get("limits") or []):
        if limit.get("type") not in ENFORCED_TYPES:
            text = f"this cluster enforces limits of type {' and '.join(ENFORCED_TYPES)} only"
            yield f"spec.limits[{index}].type", f"Unsupported value: {limit.get('type')!r}: {text}"


def _defaults(limits: Object) -> tuple[dict[str, str], dict[str, str]]:
    """Default requests and limits; without a default, the bound is used, as in the API server."""
    requests: dict[str, str] = {}
    bounds: dict[str, str] = {}
    for limit in limits["spec"].get("limits") or []:
        if limit["type"] == "Container":
            bounds |= {**(limit.get("max") or {}), **(limit.get("default") or {})}
            lowest = {**(limit.get("min") or {}), **(limit.get("max") or {}), **(limit.get("default") or {})}
            requests |= {**lowest, **(limit.get("defaultRequest") or {})}
    return requests, bounds


def _problems(limits: Object, spec: Mapping[str, Any]) -> Iterator[str]:
    for limit in limits["spec"].get("limits") or []:
        if limit["type"] == "Container":
            containers = [*spec["containers"], *(spec.get("initContainers") or [])]
            usages = [container.get("resources") or {} for container in containers]
        else:
            parts = ("requests", "limits")
            usages = [{part: {name: text for name, (_, text) in pod_amounts(spec, part).items()} for part in parts}]
        for usage in usages:
            requests, bounds = usage.get("requests") or {}, usage.get("limits") or {}
            for field, test in (("min", _below), ("max", _above), ("maxLimitRequestRatio", _ratio)):
                for name, text in (limit.get(field) or {}).items():
                    if problem := test(limit["type"], name, text, requests.get(name), bounds.get(name)):
                        yield problem


def _below(kind: str, name: str, bound: str, request: str | None, limit: str | None) -> str:
    text = f"minimum {name} usage per {kind} is {canonical(bound)}"
    if request is None:
        return f"{text}.  No request is specified"
    if quantity(request) < quantity(bound):
        return f"{text}, but request is {canonical(request)}"
    return f"{text}, but limit is {canonical(limit)}" if limit and quantity(limit) < quantity(bound) else ""


def _above(kind: str, name: str, bound: str, request: str | None, limit: str | None) -> str:
    text = f"maximum {name} usage per {kind} is {canonical(bound)}"
    if limit is None:
        return f"{text}.  No limit is specified"
    if quantity(limit) > quantity(bound):
        return f"{text}, but limit is {canonical(limit)}"
    return f"{text}, but request is {canonical(request)}" if request and quantity(request) > quantity(bound) else ""


def _ratio(kind: str, name: str, bound: str, request: str | None, limit: str | None) -> str:
    text = f"{name} max limit to request ratio per {kind} is {canonical(bound)}"
    if not request or not quantity(request):
        return f"{text}, but no request is specified or request is 0"
    if not limit or not quantity(limit):
        return f"{text}, but no limit is specified or limit is 0"
    ratio = quantity(limit) / quantity(request)
    return f"{text}, but provided ratio is {float(ratio):f}" if ratio > quantity(bound) else ""
