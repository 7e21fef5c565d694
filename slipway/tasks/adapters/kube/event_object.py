"""Kubernetes Events about a workload: what `kubectl describe` lists below it. Pure."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from slipway.tasks.contracts.redaction import bounded, redacted

Document = dict[str, Any]

COMPONENT = "slipway"
MESSAGE_CHARS = 1024
"""The longest note that events.k8s.io/v1 allows (1 kB, apis/core/validation/events.go at Kubernetes 1.35)."""
NAME_CHARS = 200


@dataclass(frozen=True)
class MoveEvent:
    """One step of a workload's story."""

    reason: str
    """One word in CamelCase."""
    message: str
    run: str
    warning: bool = False


def event_about(workload: Document, event: MoveEvent, now: datetime) -> Document:
    """The Event. Its name follows from workload, reason and run, so a step that is run again tells nothing twice."""
    metadata = workload["metadata"]
    digest = sha256("\n".join((metadata.get("uid", ""), event.reason, event.run)).encode()).hexdigest()[:16]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name'][:NAME_CHARS]}.{digest}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": workload["apiVersion"],
            "kind": workload["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata.get("uid", ""),
        },
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "message": bounded(redacted(event.message), MESSAGE_CHARS),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": event.run,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
