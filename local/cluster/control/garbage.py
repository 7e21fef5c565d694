"""Deletion: finalizers, grace periods, owned objects, and emptied namespaces."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..node.volumes import discard_claim
from ..objects.resources import CLAIMS, NAMESPACES, PODS, RESOURCES, Object, Resource
from ..objects.store import Change, Store, key_of

IMMEDIATE = ("Succeeded", "Failed")


class Deletion:
    """Deletes objects as the API server and its garbage collector do."""

    def __init__(self, store: Store, claims: Path) -> None:
        self._store, self._claims = store, claims
        store.subscribe(self._changed)

    def delete(self, resource: Resource, item: Object, grace_s: int | None, policy: str = "Background") -> Object:
        """Delete an object, or start to, and return it. With `policy` Orphan, the objects that it owns stay."""
        namespace, name = key_of(item)
        if policy == "Orphan":
            self._disown(item["metadata"]["uid"])
        if resource is PODS:
            return self._delete_pod(item, grace_s)
        if resource is NAMESPACES:
            return self._delete_namespace(item)
        if item["metadata"].get("finalizers"):
            return self._mark(resource, item, 0)
        return self._store.remove(resource, namespace, name)

    def finish(self, resource: Resource, item: Object) -> None:
        """Remove an object that only a finalizer held."""
        meta = item["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers") and resource not in (PODS, NAMESPACES):
            self._store.remove(resource, *key_of(item))

    def resume(self) -> None:
        """Continue deleting namespaces whose deletion the end of the server interrupted."""
        for item in self._store.all(NAMESPACES):
            if "deletionTimestamp" in item["metadata"]:
                self._delete_namespace(item)

    def _delete_pod(self, pod: Object, grace_s: int | None) -> Object:
        if grace_s is None:
            grace_s = int(pod["spec"].get("terminationGracePeriodSeconds", 30))
        if pod["status"].get("phase") in IMMEDIATE or not pod["spec"].get("nodeName"):
            grace_s = 0
        return self._mark(PODS, pod, grace_s)

    def _mark(self, resource: Resource, item: Object, grace_s: int) -> Object:
        meta = item["metadata"]
        if "deletionTimestamp" in meta and meta.get("deletionGracePeriodSeconds", 0) <= grace_s:
            return item
        due = datetime.fromtimestamp(time.time() + grace_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        marks: dict[str, Any] = {"deletionTimestamp": due, "deletionGracePeriodSeconds": grace_s}
        return self._store.modify(resource, *key_of(item), lambda new: new["metadata"].update(marks)) or item

    def _delete_namespace(self, item: Object) -> Object:
        name = item["metadata"]["name"]
        marked = self._mark(NAMESPACES, item, 0)
        self._store.modify(NAMESPACES, "", name, lambda new: new["status"].update(phase="Terminating"))
        for resource in RESOURCES:
            for inside in self._store.all(resource, name) if resource.namespaced else []:
                if self._store.get(resource, *key_of(inside)) is not None:
                    self.delete(resource, inside, None)
        self._end_namespace(name)
        return self._store.get(NAMESPACES, "", name) or marked

    def _end_namespace(self, name: str) -> None:
        namespace = self._store.get(NAMESPACES, "", name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        if not any(self._store.all(resource, name) for resource in RESOURCES if resource.namespaced):
            self._store.remove(NAMESPACES, "", name)

    def _changed(self, change: Change) -> None:
        if change.new is not None:
            return
        gone = change.object
        namespace, name = key_of(gone)
        if change.resource is CLAIMS:
            discard_claim(self._claims, namespace, name)
        self._delete_owned(gone["metadata"]["uid"])
        if namespace:
            self._end_namespace(namespace)

    def _delete_owned(self, uid: str) -> None:
        for resource in RESOURCES:
            for item in self._store.all(resource):
                owners = item["metadata"].get("ownerReferences") or []
                if not any(owner.get("uid") == uid for owner in owners):
                    continue
                rest = [owner for owner in owners if owner.get("uid") != uid]
                if rest:
                    self._own(resource, item, rest)
                elif self._store.get(resource, *key_of(item)) is not None:
                    self.delete(resource, item, None)

    def _disown(self, uid: str) -> None:
        for resource in RESOURCES:
            for item in self._store.all(resource):
                owners = item["metadata"].get("ownerReferences") or []
                rest = [owner for owner in owners if owner.get("uid") != uid]
                if rest != owners:
                    self._own(resource, item, rest)

    def _own(self, resource: Resource, item: Object, owners: list[Any]) -> None:
        self._store.modify(resource, *key_of(item), lambda new: new["metadata"].update(ownerReferences=owners))
