"""Reads the status of workloads, and selects their pods. Pure."""

from collections.abc import Iterable
from typing import Any

Workload = dict[str, Any]
"""A Deployment or a LeaderWorkerSet as JSON."""

DEPLOYMENT, LEADER_WORKER_SET = "Deployment", "LeaderWorkerSet"
SET_NAME = "leaderworkerset.sigs.k8s.io/name"
SET_REVISION = "leaderworkerset.sigs.k8s.io/template-revision-hash"
"""Labels on every pod of a LeaderWorkerSet: its set, and the generation of its templates
(api/leaderworkerset/v1/leaderworkerset_types.go of kubernetes-sigs/lws)."""


def is_available(workload: Workload) -> bool:
    """Whether every replica is available in the newest generation, and no older one is left.

    A LeaderWorkerSet's replica is a group of pods, and available when all of them are ready; `observedGeneration` of
    its status came with v0.9 of its controller.
    """
    status, wanted = workload.get("status") or {}, workload["spec"].get("replicas", 1)
    ready = "readyReplicas" if workload["kind"] == LEADER_WORKER_SET else "availableReplicas"
    return bool(
        status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == wanted
        and status.get(ready, 0) == wanted
        and status.get("replicas", 0) == wanted
    )


def lacks_generation(workload: Workload) -> bool:
    """Whether a LeaderWorkerSet's status omits the generation that it describes, as controllers before v0.9 do.

    A controller writes its first conditions together with `observedGeneration`.
    """
    status = workload.get("status") or {}
    described = workload["kind"] == LEADER_WORKER_SET and bool(status.get("conditions"))
    return described and "observedGeneration" not in status


def is_serving(workload: Workload, replicas: int) -> bool:
    """Whether at least `replicas` answer: a scaler may be adding more, or removing some."""
    ready = "readyReplicas" if workload["kind"] == LEADER_WORKER_SET else "availableReplicas"
    return int((workload.get("status") or {}).get(ready, 0)) >= replicas


def refused_pods(workload: Workload) -> str:
    """Why the cluster creates no pods for a Deployment, such as a quota; empty when it does.

    The reason is in the condition ReplicaFailure (pkg/controller/deployment/util, Kubernetes 1.36).
    """
    for condition in (workload.get("status") or {}).get("conditions") or []:
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return f"{condition.get('reason')}: {condition.get('message')}"
    return ""


def newest_of_set(pods: Iterable[Workload]) -> list[Workload]:
    """The pods of a LeaderWorkerSet that have the same generation as its youngest pod."""
    by_age = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    if not by_age:
        return []
    newest = by_age[-1]["metadata"].get("labels", {}).get(SET_REVISION)
    return [pod for pod in by_age if pod["metadata"].get("labels", {}).get(SET_REVISION) == newest]
