"""What pods say about themselves in their status, and whether there is hope for them. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Pod = dict[str, Any]
"""A Pod as JSON."""

HOPELESS = {"CrashLoopBackOff", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"}
"""Reasons of a waiting container that time does not mend. ErrImagePull comes before a registry was asked again."""
WRONG_INPUT = 65
UNAVAILABLE = 75
"""Exit codes of tasks.contracts.errors: the second asks to be tried again, which the kubelet does by itself."""


@dataclass(frozen=True)
class Trouble:
    """A container that will never run, and why. `message` is its own last words, where it left any."""

    pod: str
    container: str
    reason: str
    message: str


def trouble(pod: Pod) -> Trouble | None:
    """The first container of the pod that will never run; None while there is hope."""
    for status in _statuses(pod):
        ended = _ended(status)
        waiting = (status.get("state") or {}).get("waiting") or {}
        code, reason = ended.get("exitCode"), waiting.get("reason")
        if code == WRONG_INPUT or (reason in HOPELESS and code != UNAVAILABLE):
            message = (ended.get("message") or "").strip() or ("" if ended else waiting.get("message") or "")
            return Trouble(pod["metadata"]["name"], status["name"], reason or f"exit code {code}", message)
    return None


def unscheduled(pod: Pod) -> str | None:
    """Why no node takes the pod; None when one did, or none was looked for yet."""
    for condition in _conditions(pod):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "no reason given")
    return None


def is_ready(pod: Pod) -> bool:
    """Whether connections may go to the pod: it is ready, and not on its way out."""
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in _conditions(pod))
    return ready and "deletionTimestamp" not in pod["metadata"]


def waiting_for(pods: Iterable[Pod]) -> Iterator[tuple[str, str, str]]:
    """Pod, container and its last words, of each container that is neither ready nor done."""
    for pod in pods:
        for status in _statuses(pod):
            done = (status.get("state") or {}).get("terminated", {}).get("exitCode") == 0
            if not status.get("ready") and not done:
                yield pod["metadata"]["name"], status["name"], (_ended(status).get("message") or "").strip()


def in_words(pods: Iterable[Pod]) -> str:
    """The state of every container, for a line of a log."""
    words = []
    for pod in pods:
        for status in _statuses(pod):
            state = status.get("state") or {}
            kind = next(iter(state), "waiting")
            detail = (state.get(kind) or {}).get("reason")
            ready = ", ready" if status.get("ready") else ""
            words.append(f"{status['name']} {kind}{f' ({detail})' if detail else ''}{ready}")
    return ", ".join(words) or "no pod yet"


def _statuses(pod: Pod) -> list[dict[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _conditions(pod: Pod) -> list[dict[str, Any]]:
    return (pod.get("status") or {}).get("conditions") or []


def _ended(status: dict[str, Any]) -> dict[str, Any]:
    """How the container ended last; empty when it never did."""
    state, last = status.get("state") or {}, status.get("lastState") or {}
    return state.get("terminated") or last.get("terminated") or {}
