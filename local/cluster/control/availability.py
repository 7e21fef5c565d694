"""Whether pods are available, and what that means for the conditions of their Deployment. Pure but for the clock."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..node.pod_status import condition
from ..objects.resources import Object


def deployment_conditions(
    deployment: Object, counts: Mapping[str, int], new: Object | None, *, done: bool, enough: bool
) -> list[dict[str, Any]]:
    """The conditions of a Deployment: `done` when it is rolled out, `enough` when enough pods are available."""
    old = (deployment.get("status") or {}).get("conditions") or []
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    text = f"Deployment {'has' if enough else 'does not have'} minimum availability."
    conditions = [condition(old, "Available", holds=enough, reason=reason, message=text)]
    conditions.append(_progressing(deployment, old, counts, new, done=done))
    failures = (new or {}).get("status", {}).get("conditions") or []
    return conditions + [failure for failure in failures if failure["type"] == "ReplicaFailure"]


def _progressing(
    deployment: Object, old: list[Any], counts: Mapping[str, int], new: Object | None, *, done: bool
) -> dict[str, Any]:
    """The Progressing condition: a roll-out whose counts do not change for progressDeadlineSeconds has failed."""
    name = new["metadata"]["name"] if new else ""
    before = next((known for known in old if known["type"] == "Progressing"), None)
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if done:
        text = f'ReplicaSet "{name}" has successfully progressed.'
        progressing = condition(old, "Progressing", holds=True, reason="NewReplicaSetAvailable", message=text)
        same = before is not None and before.get("reason") == progressing["reason"] and before.get("message") == text
        return progressing | {"lastUpdateTime": before["lastUpdateTime"] if before is not None and same else stamp}
    status = deployment.get("status") or {}
    moved = status.get("observedGeneration") != deployment["metadata"]["generation"] or any(
        status.get(key, 0) != count for key, count in counts.items()
    )
    if before is None or moved or before.get("reason") == "NewReplicaSetAvailable":
        text = f'ReplicaSet "{name}" is progressing.'
        progressing = condition(old, "Progressing", holds=True, reason="ReplicaSetUpdated", message=text)
        return progressing | {"lastUpdateTime": stamp}
    waited = datetime.now(UTC) - datetime.fromisoformat(before["lastUpdateTime"])
    if waited.total_seconds() > deployment["spec"]["progressDeadlineSeconds"]:
        text = f'ReplicaSet "{name}" has timed out progressing.'
        progressing = condition(old, "Progressing", holds=False, reason="ProgressDeadlineExceeded", message=text)
        return progressing | {"lastUpdateTime": before["lastUpdateTime"]}
    return dict(before)


def is_ready(pod: Object) -> bool:
    """Whether the pod's Ready condition is true."""
    conditions = pod["status"].get("conditions") or []
    return any(known["type"] == "Ready" and known["status"] == "True" for known in conditions)


def is_available(pod: Object, minimum_s: int) -> bool:
    """Whether the pod has been ready for `minimum_s` seconds and is not being deleted."""
    if not is_ready(pod) or "deletionTimestamp" in pod["metadata"]:
        return False
    ready = next(known for known in pod["status"]["conditions"] if known["type"] == "Ready")
    since = datetime.now(UTC) - datetime.fromisoformat(ready["lastTransitionTime"])
    return since.total_seconds() >= minimum_s
