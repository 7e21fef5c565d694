"""Events: what happened to an object, for `kubectl describe` and for people."""

import copy

from .resources import EVENTS, NAMESPACES, Object
from .store import Store, now

KEPT = 2000


class EventLog:
    """Writes events of one component on one node; a repeated event raises the count of the first."""

    def __init__(self, store: Store, component: str, node: str) -> None:
        self._store, self._component, self._node = store, component, node
        self._known: dict[tuple[str, str, str], tuple[str, str]] = {}

    def normal(self, about: Object, reason: str, message: str) -> None:
        """Something expected happened."""
        self._record(about, "Normal", reason, message)

    def warning(self, about: Object, reason: str, message: str) -> None:
        """Something went wrong."""
        self._record(about, "Warning", reason, message)

    def _record(self, about: Object, kind: str, reason: str, message: str) -> None:
        meta = about["metadata"]
        key = (meta.get("uid", ""), reason, message)
        if key in self._known:
            namespace, name = self._known[key]
            if self._store.modify(EVENTS, namespace, name, _count_up) is not None:
                return
        namespace = meta.get("namespace") or "default"
        place = self._store.get(NAMESPACES, "", namespace)
        if place is None or "deletionTimestamp" in place["metadata"]:
            return
        self._forget_old()
        stamp = now()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name'][:220]}.{self._store.version:016x}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": meta["name"],
                "namespace": namespace,
                "uid": meta.get("uid", ""),
                "resourceVersion": meta.get("resourceVersion", ""),
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component, "host": self._node},
            "reportingComponent": self._component,
            "reportingInstance": self._node,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "eventTime": None,
            "count": 1,
        }
        created = self._store.create(EVENTS, event)
        self._known[key] = (namespace, created["metadata"]["name"])

    def _forget_old(self) -> None:
        events = self._store.all(EVENTS)
        if len(events) >= KEPT:
            oldest = sorted(events, key=lambda event: event.get("lastTimestamp") or "")
            for event in copy.copy(oldest[: KEPT // 4]):
                self._store.remove(EVENTS, event["metadata"]["namespace"], event["metadata"]["name"])
            self._known.clear()


def _count_up(event: Object) -> None:
    event["count"] = event.get("count", 1) + 1
    event["lastTimestamp"] = now()
