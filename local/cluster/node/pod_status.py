"""Computes the status of a pod from its containers. Its only I/O is reading termination messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..objects.resources import Object
from ..objects.store import now
from .attempts import Attempt, find

MESSAGE_BYTES = 4096
FALLBACK_BYTES = 2048
LOG_GONE = (
    'Error on reading termination message from logs: failed to try resolving symlinks in path "{0}": '
    "lstat {0}: no such file or directory"
)
"""readLastStringFromContainerLogs, pkg/kubelet/kuberuntime/kuberuntime_container.go, Kubernetes 1.34."""
FINAL_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Seen:
    """The state of one container: never started, running, ended, or waiting for something."""

    container: Mapping[str, Any]
    attempt: Attempt | None = None
    ended: Mapping[str, Any] | None = None
    waiting: Mapping[str, str] | None = None
    ready: bool = False
    started: bool = False
    restarts: bool = False

    @property
    def sidecar(self) -> bool:
        """Whether it is an init container that runs beside the pod's own containers."""
        return is_sidecar(self.container)

    @property
    def running(self) -> bool:
        """Whether its process is running."""
        return self.attempt is not None and self.ended is None

    @property
    def done(self) -> bool:
        """Whether it ended for good."""
        return self.ended is not None and not self.restarts

    @property
    def failed(self) -> bool:
        """Whether it ended for good with an error."""
        return self.done and self.ended is not None and self.ended["exitCode"] != 0


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Whether an init container is a sidecar: it starts before the main containers and ends after them."""
    return container.get("restartPolicy") == "Always"


def stored_status(pod: Object, name: str) -> Object:
    """The stored status of a container; empty if there is none yet."""
    statuses = [
        each for kind in ("containerStatuses", "initContainerStatuses") for each in pod["status"].get(kind) or []
    ]
    return next((each for each in statuses if each["name"] == name), {})


def has_initialized(seen: Seen) -> bool:
    """Whether the containers after this init container may start."""
    return seen.running and seen.started if seen.sidecar else seen.done and not seen.failed


def compute(pod: Object, inits: Sequence[Seen], mains: Sequence[Seen], address: str, node_address: str) -> Object:
    """The whole status; conditions that did not change keep their times."""
    old = pod.get("status") or {}
    phase = phase_of(inits, mains)
    begun = any(seen.attempt is not None for seen in mains)
    initialized = begun or all(has_initialized(seen) for seen in inits)
    serving = [*(seen for seen in inits if seen.sidecar), *mains]
    ready = initialized and all(seen.running and seen.ready for seen in serving)
    status: Object = {
        "phase": phase,
        "conditions": _conditions(
            old.get("conditions") or [], phase, sandbox=bool(address), initialized=initialized, ready=ready
        ),
        "hostIP": node_address,
        "hostIPs": [{"ip": node_address}],
        **({"podIP": address, "podIPs": [{"ip": address}]} if address else {}),
        "startTime": old.get("startTime") or now(),
        "qosClass": old.get("qosClass", "BestEffort"),
        "containerStatuses": [_container_status(seen, "PodInitializing" if inits else None) for seen in mains],
    }
    if inits:
        status["initContainerStatuses"] = [
            _container_status(seen, "PodInitializing") | ({} if seen.sidecar else {"ready": has_initialized(seen)})
            for seen in inits
        ]
    return status


def phase_of(inits: Sequence[Seen], mains: Sequence[Seen]) -> str:
    """Pending, Running, Succeeded or Failed."""
    if any(seen.failed for seen in inits if not seen.sidecar):
        return "Failed"
    if mains and all(seen.done for seen in mains):
        return "Failed" if any(seen.failed for seen in mains) else "Succeeded"
    return "Running" if any(seen.attempt is not None for seen in mains) else "Pending"


def condition(
    old: Sequence[Mapping[str, Any]], kind: str, *, holds: bool, reason: str = "", message: str = ""
) -> dict[str, Any]:
    """A condition; it keeps its time while its status does not change."""
    status = "True" if holds else "False"
    before = next((known for known in old if known["type"] == kind), None)
    same = before is not None and before["status"] == status
    since = before["lastTransitionTime"] if before is not None and same else now()
    entry = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
    return entry | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})


def terminated(attempt: Attempt, container: Mapping[str, Any], ended: Mapping[str, Any]) -> dict[str, Any]:
    """The `terminated` state of an attempt."""
    state = {
        "exitCode": ended["exitCode"],
        "reason": ended["reason"],
        "startedAt": _seconds(ended["startedAt"]),
        "finishedAt": _seconds(ended["finishedAt"]),
        "containerID": attempt.identifier,
    }
    message = _message(attempt, container, ended)
    return state | ({"message": message} if message else {})


def _conditions(old: list[Any], phase: str, *, sandbox: bool, initialized: bool, ready: bool) -> list[dict[str, Any]]:
    done = "PodCompleted" if phase == "Succeeded" else "PodFailed" if phase == "Failed" else ""
    not_ready = "" if ready else done or "ContainersNotReady"
    not_initialized = "" if initialized else "ContainersNotInitialized"
    return [
        condition(old, "PodReadyToStartContainers", holds=sandbox and phase not in FINAL_PHASES),
        condition(old, "Initialized", holds=initialized, reason=done or not_initialized),
        condition(old, "Ready", holds=ready, reason=not_ready),
        condition(old, "ContainersReady", holds=ready, reason=not_ready),
        condition(old, "PodScheduled", holds=True),
    ]


def _container_status(seen: Seen, waiting_reason: str | None) -> dict[str, Any]:
    container, attempt = seen.container, seen.attempt
    status: dict[str, Any] = {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"local://{container['image']}" if attempt else "",
        "ready": seen.ready,
        "started": seen.running and seen.started,
        "restartCount": attempt.number if attempt else 0,
        "state": _state(seen, waiting_reason or "ContainerCreating"),
        "lastState": _last_state(seen),
    }
    if attempt is not None:
        status["containerID"] = attempt.identifier
    return status


def _state(seen: Seen, waiting_reason: str) -> dict[str, Any]:
    if seen.waiting is not None:
        return {"waiting": dict(seen.waiting)}
    if seen.attempt is None:
        return {"waiting": {"reason": waiting_reason}}
    if seen.ended is not None:
        return {"terminated": terminated(seen.attempt, seen.container, seen.ended)}
    started = seen.attempt.started() or {}
    return {"running": {"startedAt": _seconds(started.get("startedAt", now()))}}


def _last_state(seen: Seen) -> dict[str, Any]:
    if seen.attempt is None:
        return {}
    if seen.waiting is not None and seen.ended is not None:
        return {"terminated": terminated(seen.attempt, seen.container, seen.ended)}
    previous = find(seen.attempt.folder.parent, seen.attempt.number - 1)
    ended = previous.ended() if previous else None
    return {"terminated": terminated(previous, seen.container, ended)} if previous and ended else {}


def _message(attempt: Attempt, container: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    try:
        with attempt.termination_log.open("rb") as stream:
            message = stream.read(MESSAGE_BYTES).decode(errors="replace")
    except OSError:
        message = ""
    fallback = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    if not message and fallback and ended["exitCode"] != 0:
        if not attempt.log.exists():
            return LOG_GONE.format(attempt.log)
        lines = attempt.log.read_bytes()[-2 * FALLBACK_BYTES :].splitlines()
        texts = [line.split(b" ", 3)[-1] for line in lines]
        message = b"\n".join(texts)[-FALLBACK_BYTES:].decode(errors="replace")
    return message or str(ended.get("message", ""))


def _seconds(stamp: str) -> str:
    return stamp.partition(".")[0].rstrip("Z") + "Z"
