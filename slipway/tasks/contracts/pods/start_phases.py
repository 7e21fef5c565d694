"""The phases of a pod's start, and the time that each may take. Pure.

A pod waits for a node, then for its images and volumes, and then its program runs. These take minutes each where nodes
are added on demand and images have 20 GB, for reasons that have nothing to do with each other. So each has a budget of
its own (`budgets` of the site), and a failure names the phase that used its budget up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slipway.tasks.contracts.pods.pod_failures import Pod, PodFailure

Event = dict[str, Any]
"""An Event of a pod as JSON."""

GPU = "nvidia.com/gpu"
PLACING = ("FailedScheduling", "Nominated", "TriggeredScaleUp", "NotTriggerScaleUp")
"""Events about the search for a node: of the scheduler, of Karpenter 1.14 (pkg/controllers/provisioning/scheduling/
events.go) and of cluster-autoscaler 1.33 (processors/status/eventing_scale_up_processor.go)."""
PULLING = ("Pulling", "Pulled", "Failed", "FailedMount", "FailedCreatePodSandBox")
"""Events of the kubelet about what comes before a container (pkg/kubelet/events, Kubernetes 1.36)."""
CAUSELESS = frozenset({"Error: ErrImagePull", "Error: ImagePullBackOff"})
"""The kubelet reports a failed pull twice under the same reason: with its cause, and then like this."""
EXCEEDED = "exceeded quota: "
"""In the message of a pod that a ResourceQuota refuses (apiserver/pkg/admission/plugin/resourcequota/controller.go,
Kubernetes 1.36)."""
MESSAGE_CHARS = 256


class StartPhase(StrEnum):
    """What a pod is waiting for. Phases may come again: each container's image is pulled when its turn comes."""

    SCHEDULE = "schedule"
    PULL = "pull"
    RUN = "run"


WAITS_FOR = {StartPhase.SCHEDULE: "a node", StartPhase.PULL: "images and volumes", StartPhase.RUN: "its program"}
LATE = {StartPhase.SCHEDULE: "not scheduled", StartPhase.PULL: "slow pull"}
"""Kind of failure (pod_failures.py) of each phase that comes before the program."""


def phase_of(pod: Pod) -> StartPhase:
    """The phase that the pod is in.

    A container that has run before is in the RUN phase even while it waits to be restarted.
    """
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    if not _is_scheduled(pod):
        return StartPhase.SCHEDULE
    sidecars = {each["name"] for each in spec.get("initContainers") or [] if each.get("restartPolicy") == "Always"}
    for each in status.get("initContainerStatuses") or []:
        state = each.get("state") or {}
        if each["name"] in sidecars and "running" in state:
            continue
        if (state.get("terminated") or {}).get("exitCode") == 0:
            continue
        return StartPhase.RUN if _has_run(each) else StartPhase.PULL
    mains = status.get("containerStatuses") or []
    return StartPhase.RUN if mains and all(_has_run(each) for each in mains) else StartPhase.PULL


def latest_phase(pods: Iterable[Pod]) -> StartPhase:
    """The earliest phase that one of the pods is still in; SCHEDULE while there is none."""
    phases = {phase_of(pod) for pod in pods}
    return next((phase for phase in StartPhase if phase in phases), StartPhase.SCHEDULE)


def budget_name(pod: Pod) -> str:
    """Which of the site's budgets applies to the pod: `gpu` or `cpu`."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    return "gpu" if any(GPU in ((each.get("resources") or {}).get("limits") or {}) for each in containers) else "cpu"


def reason(pod: Pod, events: Iterable[Event]) -> str:
    """What the pod waits for, in the words of whoever it waits for; empty when nobody has said anything.

    Args:
        pod: the pod.
        events: its events, oldest first.
    """
    phase = phase_of(pod)
    if phase is StartPhase.RUN:
        return ""
    kinds = PLACING if phase is StartPhase.SCHEDULE else PULLING
    relevant = [event for event in events if event.get("reason") in kinds and event.get("message") not in CAUSELESS]
    latest = {event.get("reason"): event for event in relevant}
    texts = [f"{each.get('reason')}: {_one_line(each.get('message'))}" for each in latest.values()]
    unplaced = unscheduled(pod) if phase is StartPhase.SCHEDULE else None
    if unplaced and not any(_one_line(unplaced) in text for text in texts):
        texts.append(f"Unschedulable: {_one_line(unplaced)}")
    return "; ".join(texts)


@dataclass
class PhaseClock:
    """Adds up the time that a pod, or the slowest of several, has spent in each phase."""

    budgets_s: Mapping[StartPhase, float]
    spent_s: dict[StartPhase, float] = field(default_factory=lambda: dict.fromkeys(StartPhase, 0.0))
    phase: StartPhase = StartPhase.SCHEDULE
    seen_at: float | None = None

    def look(self, phase: StartPhase, now_s: float) -> bool:
        """Record the phase at `now_s` of a monotonic clock. Returns whether it differs from the last one."""
        if self.seen_at is not None:
            self.spent_s[self.phase] += now_s - self.seen_at
        changed = phase is not self.phase or self.seen_at is None
        self.phase, self.seen_at = phase, now_s
        return changed

    @property
    def is_late(self) -> bool:
        """Whether the current phase has used its budget up."""
        return self.spent_s[self.phase] >= self.budgets_s.get(self.phase, float("inf"))

    def progress(self) -> str:
        """The time spent so far: `schedule 95 of 1800 s, pull 12 of 1800 s`."""
        parts = []
        for phase in StartPhase:
            if self.spent_s[phase] > 0 or phase is self.phase:
                limit = f" of {self.budgets_s[phase]:.0f}" if phase in self.budgets_s else ""
                parts.append(f"{phase} {self.spent_s[phase]:.0f}{limit} s")
        return ", ".join(parts)


def late(pod: Pod, clock: PhaseClock, why: str) -> PodFailure:
    """The failure of a pod whose current phase, which comes before its program, used its budget up."""
    phase, name = clock.phase, pod["metadata"]["name"]
    field_name = f"budgets.{budget_name(pod)}.{phase}_min"
    what = (
        f"pod {name} waited {clock.spent_s[phase]:.0f} s for {WAITS_FOR[phase]}, as long as {field_name} of the site "
        f"allows: {why or 'nothing was reported'}"
    )
    return PodFailure(LATE[phase], what, budget=field_name)


def over_quota(pod: Pod, waited_s: float, why: str) -> PodFailure:
    """The failure of a pod that could not be created, because a quota had no room for it all the time."""
    field_name = f"budgets.{budget_name(pod)}.{StartPhase.SCHEDULE}_min"
    what = (
        f"pod {pod['metadata']['name']} waited {waited_s:.0f} s for room in a quota, as long as {field_name} of the "
        f"site allows: {_one_line(why)}"
    )
    return PodFailure("quota", what, budget=field_name)


def _is_scheduled(pod: Pod) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each["type"] == "PodScheduled" and each["status"] == "True" for each in conditions)


def unscheduled(pod: Pod) -> str | None:
    """Why the scheduler has no node for the pod, in its own words; None while it has said nothing."""
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "no reason given")
    return None


def _has_run(status: Mapping[str, Any]) -> bool:
    state, last = status.get("state") or {}, status.get("lastState") or {}
    return bool("running" in state or "terminated" in state or last or status.get("restartCount"))


def _one_line(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= MESSAGE_CHARS else f"{line[: MESSAGE_CHARS - 3]}..."
