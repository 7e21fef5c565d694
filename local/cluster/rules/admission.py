"""Refuses objects that are malformed, or that need what this cluster could only pretend to do.

README.md lists what is accepted and only recorded.
"""

import re
from collections.abc import Iterator
from typing import Any

from ..objects import gateway_api
from ..objects.resources import (
    DEPLOYMENTS,
    EVENTS,
    LIMIT_RANGES,
    NAMESPACES,
    PODS,
    QUOTAS,
    REPLICA_SETS,
    ROUTED,
    SERVICES,
    Object,
    Resource,
)
from ..objects.selectors import matches_spec
from ..objects.status import invalid
from . import limit_ranges, pod_security, pod_specs, quotas
from .pod_specs import DNS_LABEL, Problem, refused

REFUSED_SERVICE_FIELDS = {"externalIPs": "Services of this cluster listen on their clusterIP only"}
NAME_LENGTH = 253
LABEL_LENGTH = 63
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
_PATH_NAME_GROUPS = ("rbac.authorization.k8s.io",)  # names of roles may hold colons


def check(resource: Resource, item: Object, node: str) -> None:
    """Refuse `item` with everything that is wrong with it; `node` is the name of the one node.

    Raises:
        ApiError: 422.
    """
    problems = list(_metadata(resource, item))
    if resource is PODS:
        problems += pod_specs.problems("spec", item.get("spec"), node)
    elif resource in (DEPLOYMENTS, REPLICA_SETS):
        problems += _workload(item.get("spec") or {}, node)
    elif resource is SERVICES:
        problems += _service(item.get("spec") or {})
    elif resource is NAMESPACES:
        problems += pod_security.label_problems(item["metadata"].get("labels") or {})
    elif resource is QUOTAS:
        problems += quotas.spec_problems(item.get("spec") or {})
    elif resource is EVENTS:
        problems += _event(item)
    elif resource is LIMIT_RANGES:
        problems += limit_ranges.spec_problems(item.get("spec") or {})
    elif resource in ROUTED:
        problems += gateway_api.problems(resource, item)
    if problems:
        raise invalid(resource, item["metadata"].get("name", ""), problems)


def check_update(resource: Resource, old: Object, new: Object, node: str) -> None:
    """Refuse changes that Kubernetes refuses.

    Raises:
        ApiError: 422.
    """
    check(resource, new, node)
    problems: list[Problem] = []
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if resource is PODS and before != after:
        changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        problems.append(("spec", f"Forbidden: running pods cannot be changed here ({', '.join(changed)})"))
    if resource in (DEPLOYMENTS, REPLICA_SETS) and before.get("selector") != after.get("selector"):
        problems.append(("spec.selector", "Invalid value: field is immutable"))
    if resource.kind.endswith("RoleBinding") and old.get("roleRef") != new.get("roleRef"):
        problems.append(("roleRef", "Invalid value: cannot change roleRef"))
    if resource is SERVICES and before.get("clusterIP") != after.get("clusterIP"):
        problems.append(("spec.clusterIPs[0]", "Invalid value: may not change once set"))
    if old.get("immutable") and any(old.get(part) != new.get(part) for part in ("data", "binaryData", "immutable")):
        problems.append(("data", "Forbidden: field is immutable when `immutable` is set"))
    if problems:
        raise invalid(resource, new["metadata"]["name"], problems)


def _metadata(resource: Resource, item: Object) -> Iterator[Problem]:
    meta = item["metadata"]
    name = meta.get("name", "")
    pattern = DNS_LABEL if resource.kind in ("Service", "Namespace") else _SUBDOMAIN
    length = LABEL_LENGTH if pattern is DNS_LABEL else NAME_LENGTH
    if resource.group not in _PATH_NAME_GROUPS and not (pattern.match(name) and len(name) <= length):
        want = f"want lower case letters, digits, '-' (and '.'), at most {length}"
        yield "metadata.name", f"Invalid value: {name!r}: {want}"
    for key, value in (meta.get("labels") or {}).items():
        good = isinstance(value, str) and _LABEL_VALUE.match(value) and len(value) <= LABEL_LENGTH
        if not good or len(key.rpartition("/")[2]) > LABEL_LENGTH:
            yield "metadata.labels", f"Invalid value: {key}={value!r}: at most {LABEL_LENGTH} of [A-Za-z0-9_.-]"


def _event(item: Object) -> Iterator[Problem]:
    """Check an Event as the legacy validation of core/v1 does (pkg/apis/core/validation/events.go, Kubernetes 1.35)."""
    about, own = (item.get("involvedObject") or {}).get("namespace") or "default", item["metadata"].get("namespace")
    if about != own:
        yield "involvedObject.namespace", f"Invalid value: {about!r}: does not match event.namespace"


def _workload(spec: dict[str, Any], node: str) -> Iterator[Problem]:
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not matches_spec(spec.get("selector"), labels):
        yield "spec.template.metadata.labels", f"Invalid value: {labels}: `selector` does not match template `labels`"
    yield from pod_specs.problems("spec.template.spec", template.get("spec"), node)
    policy = (template.get("spec") or {}).get("restartPolicy", "Always")
    if policy != "Always":
        yield "spec.template.spec.restartPolicy", f'Unsupported value: "{policy}": supported values: "Always"'


def _service(spec: dict[str, Any]) -> Iterator[Problem]:
    if spec.get("type") == "NodePort":
        yield "spec.type", 'Unsupported value: "NodePort": this cluster has no node ports; use ClusterIP'
    if not spec.get("ports") and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None":
        yield "spec.ports", "Required value"
    yield from refused("spec", spec, REFUSED_SERVICE_FIELDS)
    if spec.get("sessionAffinity") not in (None, "None"):
        text = "this cluster distributes connections over the endpoints in turn; use None"
        yield "spec.sessionAffinity", f"Unsupported value: {spec['sessionAffinity']!r}: {text}"
    ports = spec.get("ports") or []
    for index, port in enumerate(ports):
        if port.get("protocol", "TCP") != "TCP":
            yield (
                f"spec.ports[{index}].protocol",
                f"Unsupported value: {port['protocol']}: this cluster proxies TCP only",
            )
        if len(ports) > 1 and not port.get("name"):
            yield f"spec.ports[{index}].name", "Required value"
