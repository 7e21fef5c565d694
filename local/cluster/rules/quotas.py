"""ResourceQuota: counts what a namespace uses, and refuses objects that would exceed a quota.

Rules and messages: https://github.com/kubernetes/kubernetes/blob/v1.34.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go.
Usage is counted for each request, so nothing waits for a controller.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ..node.pod_status import FINAL_PHASES
from ..objects.quantities import Amounts, add, format_quantity, is_binary, pod_amounts, quantity, texts
from ..objects.resources import PODS, QUOTAS, RESOURCES, Object, Resource
from ..objects.status import forbidden
from ..objects.store import Change, Store, key_of

COMPUTE = ("cpu", "memory", "ephemeral-storage")
MUST_BE_GIVEN = ("cpu", "memory")  # a quota on one of these requires every container to set it
OBJECT_COUNTS = ("configmaps", "persistentvolumeclaims", "resourcequotas", "secrets", "services")


def check(store: Store, resource: Resource, item: Object) -> None:
    """Refuse an object that would exceed one of the namespace's quotas.

    Raises:
        ApiError: 403.
    """
    name = item["metadata"]["name"]
    for quota in store.all(QUOTAS, item["metadata"].get("namespace") or "-"):
        hard = quota["spec"].get("hard") or {}
        if resource is PODS and (missing := _missing(hard, item["spec"])):
            raise forbidden(resource, name, f"failed quota: {quota['metadata']['name']}: must specify {missing}")
        delta = {key: amount for key, amount in _usage(resource, item).items() if key in hard and amount[0]}
        used = _used(store, quota)
        after = add(used, delta)
        exceeded = sorted(key for key in delta if after[key][0] > quantity(hard[key]))
        if exceeded:
            limited = {key: (quantity(hard[key]), is_binary(hard[key])) for key in exceeded}
            parts = (("requested", delta), ("used", used), ("limited", limited))
            listed = ", ".join(f"{word}: {_listed(amounts, exceeded)}" for word, amounts in parts)
            raise forbidden(resource, name, f"exceeded quota: {quota['metadata']['name']}, {listed}")


def spec_problems(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Parts of a quota that this cluster cannot enforce."""
    for field in ("scopes", "scopeSelector"):
        if spec.get(field):
            yield f"spec.{field}", "Forbidden: this cluster has no quota scopes"
    for key in spec.get("hard") or {}:
        if not _is_counted(key):
            yield f"spec.hard[{key}]", "Forbidden: this cluster does not count it"


class QuotaStatus:
    """Keeps `status.hard` and `status.used` of every quota up to date."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.subscribe(self._changed)

    def _changed(self, change: Change) -> None:
        namespace = change.object["metadata"].get("namespace")
        if namespace and (change.resource in (PODS, QUOTAS) or change.old is None or change.new is None):
            for quota in self._store.all(QUOTAS, namespace):
                self._write(quota)

    def _write(self, quota: Object) -> None:
        status = {"hard": dict(quota["spec"].get("hard") or {}), "used": texts(_used(self._store, quota))}
        if quota.get("status") != status:
            self._store.modify(QUOTAS, *key_of(quota), lambda item: item.update(status=status))


def _used(store: Store, quota: Object) -> Amounts:
    hard, namespace = quota["spec"].get("hard") or {}, quota["metadata"]["namespace"]
    total: Amounts = {key: (quantity(0), False) for key in hard}
    for resource in RESOURCES:
        if resource.namespaced and _counts(resource, hard):
            for item in store.all(resource, namespace):
                total = add(total, {key: amount for key, amount in _usage(resource, item).items() if key in hard})
    return total


def _usage(resource: Resource, item: Object) -> Amounts:
    one = (quantity(1), False)
    usage: Amounts = {f"count/{resource.qualified}": one}
    if resource.qualified in OBJECT_COUNTS:
        usage[resource.qualified] = one
    if resource is not PODS or _is_over(item):
        return usage
    usage["pods"] = one
    for name, (amount, text) in pod_amounts(item["spec"], "requests").items():
        usage[f"requests.{name}"] = (amount, is_binary(text))
        if name in COMPUTE:
            usage[name] = usage[f"requests.{name}"]
    for name, (amount, text) in pod_amounts(item["spec"], "limits").items():
        usage[f"limits.{name}"] = (amount, is_binary(text))
    return usage


def _is_over(pod: Object) -> bool:
    """Whether a pod uses nothing any more: it has ended, or its grace period is over."""
    if (pod.get("status") or {}).get("phase") in FINAL_PHASES:
        return True
    due = pod["metadata"].get("deletionTimestamp")
    return due is not None and datetime.fromisoformat(due) < datetime.now(UTC)


def _missing(hard: Mapping[str, str], spec: Mapping[str, Any]) -> str:
    """`limits.memory for: a,b; requests.cpu for: c`: what a quota requires containers to set and they do not."""
    required: dict[str, list[str]] = {}
    for key in sorted(hard):
        part, _, name = key.rpartition(".")
        if name in MUST_BE_GIVEN and part in ("", "requests", "limits"):
            for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
                if name not in ((container.get("resources") or {}).get(part or "requests") or {}):
                    required.setdefault(key, []).append(container["name"])
    return "; ".join(f"{key} for: {','.join(sorted(names))}" for key, names in required.items())


def _counts(resource: Resource, hard: Mapping[str, str]) -> bool:
    if resource is PODS:
        return True
    return f"count/{resource.qualified}" in hard or (resource.qualified in OBJECT_COUNTS and resource.qualified in hard)


def _is_counted(key: str) -> bool:
    part, _, name = key.partition(".")
    if key.startswith("count/"):
        return any(resource.qualified == key.removeprefix("count/") for resource in RESOURCES if resource.namespaced)
    extended = part == "requests" and "/" in name
    return key in ("pods", *COMPUTE, *OBJECT_COUNTS) or extended or (part in ("requests", "limits") and name in COMPUTE)


def _listed(amounts: Amounts, keys: list[str]) -> str:
    return ",".join(f"{key}={format_quantity(*amounts[key])}" for key in keys)
