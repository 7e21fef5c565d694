"""Decides which pods use more local storage than they may, as the kubelet's eviction manager does.

The checks, their order and the messages are those of localStorageEviction in pkg/kubelet/eviction/eviction_manager.go
and helpers.go, Kubernetes 1.34; the spaces at the end of the messages are the kubelet's.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..objects.quantities import quantity
from ..objects.resources import Object

REASON = "Evicted"
GRACE_S = 1.0
"""immediateEvictionGracePeriodSeconds."""
LOOK_S = 2.0
"""The kubelet looks every ten seconds, at numbers that are up to a minute old."""
STORAGE = "ephemeral-storage"

Usage = Callable[[Mapping[str, Any]], int]


def limited(pod: Object) -> bool:
    """Whether the pod has a limit that it could exceed."""
    volumes = pod["spec"].get("volumes") or []
    return any(_size_limit(volume) for volume in volumes) or bool(_storage_limits(pod))


def cause(pod: Object, used_bytes: Usage, log_bytes: Callable[[str], int]) -> str | None:
    """The message of the pod's eviction; None for a pod within its limits.

    `used_bytes` measures a volume, `log_bytes` the log of the container of a name. What a container writes into its own
    root file system is not measured.
    """
    emptied = [volume for volume in pod["spec"].get("volumes") or [] if "emptyDir" in volume]
    used = {volume["name"]: used_bytes(volume) for volume in emptied}
    for volume in emptied:
        limit = _size_limit(volume)
        if limit and used[volume["name"]] > quantity(limit):
            return f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{limit}". '
    limits = _storage_limits(pod)
    if not limits:
        return None
    logs = {container["name"]: log_bytes(container["name"]) for container in pod["spec"]["containers"]}
    on_disk = sum(used[volume["name"]] for volume in emptied if volume["emptyDir"].get("medium") != "Memory")
    total = sum(quantity(limit) for limit in limits.values())
    if on_disk + sum(logs.values()) > total:
        shown = next(iter(limits.values())) if len(limits) == 1 else str(int(total))
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {shown}. "
    over = next((name for name, limit in limits.items() if logs[name] > quantity(limit)), None)
    return f'Container {over} exceeded its local ephemeral storage limit "{limits[over]}". ' if over else None


def _size_limit(volume: Mapping[str, Any]) -> str | None:
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    return str(limit) if limit is not None and quantity(limit) > 0 else None


def _storage_limits(pod: Object) -> dict[str, str]:
    limits = {
        container["name"]: ((container.get("resources") or {}).get("limits") or {}).get(STORAGE)
        for container in pod["spec"]["containers"]
    }
    return {name: str(limit) for name, limit in limits.items() if limit is not None}
