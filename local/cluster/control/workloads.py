"""Deployments and ReplicaSets: the part of the controller manager that a single node needs.

Both are level-triggered: each pass compares the desired with the actual state, so a missed event does no harm.
"""

import asyncio
import contextlib
import copy
import hashlib
import json
import logging
import math
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from ..node.pod_status import FINAL_PHASES, condition
from ..objects.eventlog import EventLog
from ..objects.resources import DEPLOYMENTS, PODS, REPLICA_SETS, Object, Resource
from ..objects.status import ApiError
from ..objects.store import Change, Store, key_of
from .availability import deployment_conditions, is_available, is_ready
from .backoff import Backoff

REVISION = "deployment.kubernetes.io/revision"
HASH = "pod-template-hash"
OWN_ANNOTATIONS = {REVISION, "kubectl.kubernetes.io/last-applied-configuration"}
"""A Deployment does not pass these on to its ReplicaSets."""
LOOK_S = 1.0
log = logging.getLogger(__name__)
CreatePod = Callable[[Object], Object]
Delete = Callable[[Resource, Object, int | None], Object]


class Workloads:
    """Maintains the number of pods that Deployments and ReplicaSets request."""

    def __init__(self, store: Store, create_pod: CreatePod, delete: Delete, node: str) -> None:
        """`create_pod` admits and stores a pod, or raises ApiError; `node` is named in events."""
        self._store, self._create_pod, self._delete = store, create_pod, delete
        self._deployment_events = EventLog(store, "deployment-controller", node)
        self._replica_set_events = EventLog(store, "replicaset-controller", node)
        self._backoff = Backoff()
        self._changed = asyncio.Event()
        store.subscribe(self._notice)

    async def run(self) -> None:
        """Reconcile after every change, and once a second while a roll-out waits for time to pass."""
        self._changed.set()
        while True:
            waiting = any(_in_progress(item) for item in self._store.all(DEPLOYMENTS))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOOK_S if waiting else None)
            self._changed.clear()
            for resource, look in ((DEPLOYMENTS, self._deployment), (REPLICA_SETS, self._replica_set)):
                for item in self._store.all(resource):
                    self._look(look, resource, item)

    def _notice(self, change: Change) -> None:
        if change.resource in (DEPLOYMENTS, REPLICA_SETS, PODS):
            self._changed.set()

    def _look(self, look: Callable[[Object], None], resource: Resource, item: Object) -> None:
        current = self._store.get(resource, *key_of(item))
        if current is None or "deletionTimestamp" in current["metadata"]:
            return
        try:
            look(current)
        except Exception:
            # One object that cannot be handled must not stop the others.
            log.exception("%s %s", resource.kind, item["metadata"]["name"])

    def _deployment(self, deployment: Object) -> None:
        owned = sorted(self._owned(REPLICA_SETS, deployment), key=_revision)
        template_hash = _template_hash(deployment["spec"]["template"])
        new = next((one for one in owned if one["metadata"]["labels"].get(HASH) == template_hash), None)
        old = [one for one in owned if one is not new]
        if not deployment["spec"].get("paused"):
            new = self._current_set(deployment, new, old, template_hash)
            self._roll(deployment, new, old)
            self._forget(deployment, old)
        else:
            self._resize_paused(deployment, new or (old[-1] if old else None))
        self._deployment_status(deployment, new)

    def _current_set(self, deployment: Object, new: Object | None, old: list[Object], wanted: str) -> Object:
        highest = max((_revision(one) for one in old), default=0)
        if new is None:
            new = self._store.create(REPLICA_SETS, _new_set(deployment, wanted, highest + 1))
        else:
            revision = str(max(_revision(new), highest + 1))
            new = self._annotate(REPLICA_SETS, new, _copied(deployment) | {REVISION: revision})
        self._annotate(DEPLOYMENTS, deployment, {REVISION: str(_revision(new))})
        return new

    def _roll(self, deployment: Object, new: Object, old: list[Object]) -> None:
        spec = deployment["spec"]
        replicas, strategy = spec["replicas"], spec["strategy"]
        if strategy["type"] == "Recreate":
            for one in old:
                self._scale(deployment, one, 0)
            if not any(self._pods(one) for one in old):
                self._scale(deployment, new, replicas)
            return
        surge = _share(strategy["rollingUpdate"]["maxSurge"], replicas, math.ceil)
        missing = _share(strategy["rollingUpdate"]["maxUnavailable"], replicas, math.floor)
        if surge == missing == 0:
            missing = 1
        requested = sum(one["spec"]["replicas"] for one in [new, *old])
        room = replicas + surge - (requested - new["spec"]["replicas"])
        self._scale(deployment, new, max(min(replicas, room), min(new["spec"]["replicas"], replicas)))
        available = sum(self._available(one) for one in [new, *old])
        spare = available - (replicas - missing)
        for one in old:
            # Pods that never became available serve no requests, so they are removed first.
            dead = one["spec"]["replicas"] - self._available(one)
            fewer = max(min(one["spec"]["replicas"], max(spare, 0) + max(dead, 0)), 0)
            spare -= max(fewer - max(dead, 0), 0)
            self._scale(deployment, one, one["spec"]["replicas"] - fewer)

    def _resize_paused(self, deployment: Object, only: Object | None) -> None:
        if only is not None:
            self._scale(deployment, only, deployment["spec"]["replicas"])

    def _forget(self, deployment: Object, old: list[Object]) -> None:
        idle = [one for one in old if one["spec"]["replicas"] == 0 and not self._pods(one)]
        surplus = len(idle) - deployment["spec"]["revisionHistoryLimit"]
        for one in idle[: max(surplus, 0)]:
            self._delete(REPLICA_SETS, one, None)

    def _scale(self, deployment: Object, one: Object, replicas: int) -> None:
        before = one["spec"]["replicas"]
        if before == replicas:
            return
        self._store.modify(REPLICA_SETS, *key_of(one), lambda item: item["spec"].update(replicas=replicas))
        direction = "up" if replicas > before else "down"
        text = f"Scaled {direction} replica set {one['metadata']['name']} from {before} to {replicas}"
        self._deployment_events.normal(deployment, "ScalingReplicaSet", text)

    def _deployment_status(self, deployment: Object, new: Object | None) -> None:
        spec, old = deployment["spec"], deployment.get("status") or {}
        sets = self._owned(REPLICA_SETS, deployment)
        pods = [pod for one in sets for pod in self._active(one)]
        updated = self._active(new) if new else []
        minimum_s = spec.get("minReadySeconds", 0)
        available = sum(is_available(pod, minimum_s) for pod in pods)
        counts = {
            "replicas": len(pods),
            "updatedReplicas": len(updated),
            "readyReplicas": sum(is_ready(pod) for pod in pods),
            "availableReplicas": available,
            "unavailableReplicas": max(spec["replicas"] - available, 0),
        }
        fresh = sum(is_available(pod, minimum_s) for pod in updated)
        done = len(pods) == len(updated) == spec["replicas"] == fresh
        status = {"observedGeneration": deployment["metadata"]["generation"]}
        status |= {name: count for name, count in counts.items() if count}
        missing = 0
        if spec["strategy"]["type"] == "RollingUpdate":
            missing = _share(spec["strategy"]["rollingUpdate"]["maxUnavailable"], spec["replicas"], math.floor)
        status["conditions"] = deployment_conditions(
            deployment, counts, new, done=done, enough=available >= spec["replicas"] - missing
        )
        if status != old:
            self._store.modify(DEPLOYMENTS, *key_of(deployment), lambda item: item.update(status=status))

    def _replica_set(self, one: Object) -> None:
        active = self._active(one)
        problem = self._add_pods(one, one["spec"]["replicas"] - len(active), active)
        surplus = len(active) - one["spec"]["replicas"]
        for pod in sorted(active, key=lambda pod: (is_ready(pod), pod["metadata"]["creationTimestamp"]))[
            : max(surplus, 0)
        ]:
            self._delete(PODS, pod, None)
            text = f"Deleted pod: {pod['metadata']['name']}"
            self._replica_set_events.normal(one, "SuccessfulDelete", text)
        for pod in self._owned(PODS, one):
            if pod["status"].get("phase") in FINAL_PHASES and "deletionTimestamp" not in pod["metadata"]:
                self._delete(PODS, pod, None)
        self._replica_set_status(one, problem)

    def _add_pods(self, one: Object, missing: int, active: list[Object]) -> str | None:
        """Create pods; why one was refused, now or by the last try if the next one is not due."""
        key, seen = one["metadata"]["uid"], (one["metadata"].get("annotations"), one["spec"], active)
        if missing > 0 and (why := self._backoff.why(key, seen)):
            return why
        for _ in range(missing):
            if problem := self._add_pod(one):
                self._backoff.refused(key, seen, problem)
                return problem
        self._backoff.accepted(key)
        return None

    def _replica_set_status(self, one: Object, problem: str | None) -> None:
        pods = self._active(one)
        status: Object = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": sum(is_ready(pod) for pod in pods),
            "availableReplicas": sum(is_available(pod, one["spec"].get("minReadySeconds", 0)) for pod in pods),
            "observedGeneration": one["metadata"]["generation"],
        }
        if problem:
            old = one["status"].get("conditions") or []
            status["conditions"] = [
                condition(old, "ReplicaFailure", holds=True, reason="FailedCreate", message=problem)
            ]
        if status != one.get("status"):
            self._store.modify(REPLICA_SETS, *key_of(one), lambda item: item.update(status=status))

    def _add_pod(self, one: Object) -> str | None:
        meta, template = one["metadata"], copy.deepcopy(one["spec"]["template"])
        pod_meta = template.get("metadata") or {}
        pod_meta |= {
            "name": f"{meta['name'][:240]}-{secrets.token_hex(3)[:5]}",
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "ownerReferences": [_owner("apps/v1", "ReplicaSet", meta)],
        }
        try:
            pod = self._create_pod({"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": template["spec"]})
        except ApiError as error:
            self._replica_set_events.warning(one, "FailedCreate", f"Error creating: {error.message}")
            return error.message
        text = f"Created pod: {pod['metadata']['name']}"
        self._replica_set_events.normal(one, "SuccessfulCreate", text)
        return None

    def _owned(self, resource: Resource, owner: Object) -> list[Object]:
        uid = owner["metadata"]["uid"]
        return [
            item
            for item in self._store.all(resource, owner["metadata"]["namespace"])
            if any(reference.get("uid") == uid for reference in item["metadata"].get("ownerReferences") or [])
        ]

    def _pods(self, one: Object) -> list[Object]:
        return [pod for pod in self._owned(PODS, one) if pod["status"].get("phase") not in FINAL_PHASES]

    def _active(self, one: Object) -> list[Object]:
        return [pod for pod in self._pods(one) if "deletionTimestamp" not in pod["metadata"]]

    def _available(self, one: Object) -> int:
        return sum(is_available(pod, one["spec"].get("minReadySeconds", 0)) for pod in self._pods(one))

    def _annotate(self, resource: Resource, item: Object, wanted: dict[str, str]) -> Object:
        there = item["metadata"].get("annotations") or {}
        if there.items() >= wanted.items():
            return item

        def change(new: Object) -> None:
            new["metadata"]["annotations"] = (new["metadata"].get("annotations") or {}) | wanted

        return self._store.modify(resource, *key_of(item), change) or item


def _new_set(deployment: Object, template_hash: str, revision: int) -> Object:
    meta, spec = deployment["metadata"], deployment["spec"]
    template = copy.deepcopy(spec["template"])
    labels = (template.setdefault("metadata", {}).get("labels") or {}) | {HASH: template_hash}
    template["metadata"]["labels"] = labels
    selector = copy.deepcopy(spec["selector"])
    selector["matchLabels"] = (selector.get("matchLabels") or {}) | {HASH: template_hash}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name']}-{template_hash}",
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": _copied(deployment) | {REVISION: str(revision)},
            "ownerReferences": [_owner("apps/v1", "Deployment", meta)],
        },
        "spec": {
            "replicas": 0,
            "selector": selector,
            "template": template,
            "minReadySeconds": spec.get("minReadySeconds", 0),
        },
        "status": {"replicas": 0},
    }


def _copied(deployment: Object) -> dict[str, str]:
    annotations = deployment["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if key not in OWN_ANNOTATIONS}


def _in_progress(deployment: Object) -> bool:
    status, replicas = deployment.get("status") or {}, deployment["spec"]["replicas"]
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return counts != [replicas] * 3 or status.get("observedGeneration") != deployment["metadata"]["generation"]


def _owner(api_version: str, kind: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    owner = {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return owner | {"controller": True, "blockOwnerDeletion": True}


def _revision(item: Object) -> int:
    return int((item["metadata"].get("annotations") or {}).get(REVISION, 0))


def _template_hash(template: Mapping[str, Any]) -> str:
    text = json.dumps(template, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _share(value: int | str, whole: int, rounding: Callable[[float], int]) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return rounding(int(value[:-1]) * whole / 100)
    return int(value)
