"""How many replicas a release needs before it takes the traffic, and whether enough of them answer. Pure."""

from collections.abc import Mapping

from slipway.tasks.adapters.kube.workload_state import Workload, is_available, is_serving
from slipway.tasks.contracts.stored.release import Release

FULL_REPLICAS = "slipway.dev/full-replicas"
"""Annotation of a workload that shares GPUs with another release (rollout.surge none): its replicas without that one.

It is written before the number is lowered, or with it, so that no kill leaves a lower number without it.
"""


def count(workload: Workload) -> int:
    """Replicas that a workload has by its spec."""
    return int(workload["spec"].get("replicas", 1))


def is_shrunk(workload: Workload | None) -> bool:
    """Whether the workload has, or is about to have, fewer replicas than it should."""
    return workload is not None and FULL_REPLICAS in (workload["metadata"].get("annotations") or {})


def full(workload: Workload) -> int:
    """Replicas that a workload has when it shares its GPUs with no other release."""
    return int((workload["metadata"].get("annotations") or {}).get(FULL_REPLICAS, count(workload)))


def carried(release: Release, name: str, workloads: Mapping[str, Workload], live: str | None) -> int:
    """Replicas with which the release's workload `name` can take over from the workload `live`.

    Never fewer than it has, and never more than its spec allows. A release with a fixed number keeps that.
    """
    own, serving = count(workloads[name]), workloads.get(live or "")
    if serving is None or release.spec.serving.autoscale is None:
        return own
    return max(own, min(count(serving), release.spec.serving.replicas.max))


def still_answer(release: Release, workload: Workload) -> bool:
    """Whether a live release's pods answer, be it that a scaler is adding some."""
    serving = release.spec.serving
    return (
        is_serving(workload, min(serving.replicas.min, count(workload)))
        if serving.autoscale
        else is_available(workload)
    )
