"""Reads the status of pods: how their containers do, and whether a failed one can recover. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from slipway.tasks.contracts.pods.pod_failures import last_words

Pod = dict[str, Any]
"""A Pod as JSON."""

CRASHED = "CrashLoopBackOff"
"""Reason of a waiting container that has run; slipway/tasks/contracts/pods/pod_starts.py judges one that has not."""
WRONG_INPUT = 65
UNAVAILABLE = 75
"""Exit codes of tasks.contracts.errors; the second calls for a retry, which the kubelet makes by itself."""


@dataclass(frozen=True)
class Trouble:
    """A container that ran and will not run again, and why. `message` is its termination message, or empty."""

    pod: str
    container: str
    reason: str
    message: str


def trouble(pod: Pod) -> Trouble | None:
    """The first container of the pod that ended for good; None while the pod may still become ready."""
    for status in _statuses(pod):
        ended = _ended(status)
        waiting = (status.get("state") or {}).get("waiting") or {}
        code, reason = ended.get("exitCode"), waiting.get("reason")
        if code == WRONG_INPUT or (reason == CRASHED and code != UNAVAILABLE):
            message = last_words(ended.get("message"))
            return Trouble(pod["metadata"]["name"], status["name"], reason or f"exit code {code}", message)
    return None


def is_ready(pod: Pod) -> bool:
    """Whether connections may go to the pod: it is ready and not being deleted."""
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in _conditions(pod))
    return ready and "deletionTimestamp" not in pod["metadata"]


def waiting_for(pods: Iterable[Pod]) -> Iterator[tuple[str, str, str]]:
    """Yield pod, container and termination message of each container that is neither ready nor done."""
    for pod in pods:
        for status in _statuses(pod):
            done = (status.get("state") or {}).get("terminated", {}).get("exitCode") == 0
            if not status.get("ready") and not done:
                yield pod["metadata"]["name"], status["name"], (_ended(status).get("message") or "").strip()


def summary(pods: Iterable[Pod]) -> str:
    """Describe the state of every container on one line of a log."""
    states = []
    for pod in pods:
        statuses = _statuses(pod)
        if not statuses:  # no node has it, or its node never started it
            whole = pod.get("status") or {}
            states.append(f"pod {whole.get('phase', 'Pending').lower()}{_because(whole.get('reason'))}")
        for status in statuses:
            state = status.get("state") or {}
            kind = next(iter(state), "waiting")
            detail = _because((state.get(kind) or {}).get("reason"))
            ready = ", ready" if status.get("ready") else ""
            states.append(f"{status['name']} {kind}{detail}{ready}")
    return ", ".join(states) or "no pod yet"


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _statuses(pod: Pod) -> list[dict[str, Any]]:
    """Statuses in the order in which containers become ready: a sidecar relays what the main containers answer."""
    status, inits = pod.get("status") or {}, (pod.get("spec") or {}).get("initContainers") or []
    sidecars = {container["name"] for container in inits if container.get("restartPolicy") == "Always"}
    first = status.get("initContainerStatuses") or []
    return [
        *(each for each in first if each["name"] not in sidecars),
        *(status.get("containerStatuses") or []),
        *(each for each in first if each["name"] in sidecars),
    ]


def _conditions(pod: Pod) -> list[dict[str, Any]]:
    return (pod.get("status") or {}).get("conditions") or []


def _ended(status: dict[str, Any]) -> dict[str, Any]:
    """How the container last ended; empty when it never did."""
    state, last = status.get("state") or {}, status.get("lastState") or {}
    return state.get("terminated") or last.get("terminated") or {}
