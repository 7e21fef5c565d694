"""Why a pod failed, in text, and the one table of failures that a retry may cure. Pure.

Reasons and messages are those of Kubernetes 1.36: pkg/kubelet/eviction/helpers.go, pkg/kubelet/active_deadline.go,
pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/nodeshutdown, pkg/kubelet/preemption, pkg/kubelet/kubelet_pods.go,
pkg/kubelet/kuberuntime/kuberuntime_container.go, pkg/scheduler/framework/preemption/executor.go,
pkg/registry/core/pod/storage/eviction.go and pkg/controller/{tainteviction,podgc}. Pods are plain JSON, as the API
server sends them.
"""

import re
import signal
from dataclasses import dataclass
from typing import Any, NamedTuple

from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError

Pod = dict[str, Any]
"""A Pod as JSON."""

SIGNALLED = 128
LINE_CHARS = 256
LOST_AFTER_S = 30.0
"""A kubelet that answers has ended a pod, and removed it, this long after its grace period."""
UNREADABLE = "Error on reading termination "
"""Prefix of the kubelet's text when it can no longer read a termination message."""


class Cause(NamedTuple):
    """What a kind of failure means for the task."""

    retry: bool
    remedy: str


CAUSES = {
    # the pod is gone or was stopped from outside
    "gone": Cause(True, "It was deleted, or its node was lost."),
    "node pressure": Cause(
        True, "Other pods used up the node's resources. If it happens again, give the step's shape larger nodes."
    ),
    "Preempting": Cause(True, "A critical pod needed its place on the node."),
    "Terminated": Cause(True, "Its node was shut down."),
    "NodeShutdown": Cause(True, "Its node was shut down."),
    "NodeLost": Cause(True, "Its node does not answer."),
    "container lost": Cause(True, "Its node, or the container runtime there, started again."),
    "not admitted": Cause(True, "Its node no longer had room for it, or one of its devices failed."),
    "PreemptionByScheduler": Cause(
        True,
        "Its PriorityClass is lower than that of a pod that needed the place: add nodes, or run it at another time.",
    ),
    "EvictionByEvictionAPI": Cause(True, "Its node was drained, or something else asked for its eviction."),
    "DeletionByTaintManager": Cause(True, "Its node does not answer, or has a taint that the pod does not tolerate."),
    "DeletionByPodGC": Cause(True, "Its node was removed from the cluster."),
    # the pod would fail again
    "scratch": Cause(False, "Raise shapes.{shape}.scratch in the site file; then clear this task."),
    "DeadlineExceeded": Cause(
        False,
        "It was in its run phase for longer than budgets.run_min of the site allows this step: it hung, or has more to "
        "do than that. See its log; raise the limit if it was not stuck; then clear this task.",
    ),
    "OOMKilled": Cause(
        False,
        "Raise shapes.{shape}.memory in the site file, or request less in the spec; then clear this task.",
    ),
    "StartError": Cause(False, "The image does not contain the step's program. Correct the image in the site file."),
    # the container was killed by a signal
    "SIGKILL": Cause(True, "The kernel sends it when a node runs out of memory; a person may have sent it as well."),
    "SIGTERM": Cause(True, "Kubernetes sends it when a pod is deleted or its node is drained."),
    "signal": Cause(True, "The program itself crashed; see its log."),
    # the pod cannot start (slipway/tasks/contracts/pods/pod_starts.py)
    "image name": Cause(
        False, "Correct the image in the site file or in the spec's serving.image; then release again."
    ),
    "image pull": Cause(
        False,
        "Check that the image exists, that the node reaches its registry, and that the pod may pull it; then clear "
        "this task.",
    ),
    "configuration": Cause(False, "{create} docs/cluster-setup.md has all such commands. Then clear this task."),
    "claim": Cause(
        False,
        "{create} for the volume that has the model's files, or correct source.uri in the spec "
        "(docs/cluster-setup.md, Weights without a Hub). Then clear this task.",
    ),
    "claim in use": Cause(
        True,
        "A pod on another node has the volume, whose claim is ReadWriteOnce: end that pod, or make the claim "
        "ReadOnlyMany or ReadWriteMany.",
    ),
    "container": Cause(True, "The node's container runtime refuses it; see the pod's events."),
    "not scheduled": Cause(
        True,
        "If nodes were on their way, raise {budget} in the site file; otherwise add nodes, raise the limit of what "
        "adds them or the account's quota, or request less in the shape in the site file.",
    ),
    "quota": Cause(
        True,
        "Raise the ResourceQuota of the namespace, or run fewer releases at once; if other pods were about to end, "
        "raise {budget} in the site file.",
    ),
    "slow pull": Cause(
        True,
        "If the image was still being pulled, raise {budget} in the site file, or pull it beforehand "
        "(docs/gpu-nodes.md); otherwise see the pod's events.",
    ),
}
"""Every kind of pod failure: whether Airflow retries, and what a person can do."""

EXIT_CODES = {InputError.exit_code: False, PipelineError.exit_code: True, UnavailableError.exit_code: True}
"""Whether Airflow retries after a step exits with this code; after any other code it does."""

STORAGE = re.compile(
    r"^(Usage of EmptyDir volume|Container \S+ exceeded its local ephemeral|Pod ephemeral local storage)"
)
POD_REASONS = {"DeadlineExceeded", "Preempting", "Terminated", "NodeShutdown", "NodeLost"}
NOT_ADMITTED = re.compile(r"^(OutOf.+|UnexpectedAdmissionError|NodeAffinity|NodePorts|Node\w+Mismatch)$")
DISRUPTION = "DisruptionTarget"
"""The condition by which those who end a pod from outside say so beforehand."""
LOST = {"Unknown", "ContainerStatusUnknown"}
"""What containerd 2 and the kubelet say, with a code of their own, of a container that they find dead."""
START_ERRORS = {"StartError", "ContainerCannotRun"}
NO_PROGRAM = re.compile(
    r"executable file not found|exec format error|exec: .*(no such file or directory|permission denied)"
)
"""In what runc says of an image without the program. Other errors are the node's: a full disk, or a failed mount."""


@dataclass(frozen=True)
class PodFailure:
    """One failure of a pod."""

    kind: str
    what: str
    shape: str = ""
    create: str = ""
    """Command that creates what is missing."""
    budget: str = ""
    """The site's field that limits the phase which took too long."""

    @property
    def retry(self) -> bool:
        """Whether a retry may succeed."""
        return CAUSES[self.kind].retry

    @property
    def remedy(self) -> str:
        """The likely cause, or what a person can do."""
        return CAUSES[self.kind].remedy.format(shape=self.shape, create=self.create, budget=self.budget)

    def __str__(self) -> str:
        return f"{self.what.rstrip('.')}. {self.remedy}"


def gone(pod: str) -> PodFailure:
    """The failure of a pod that does not exist any more; `pod` is its name with its namespace."""
    return PodFailure("gone", f"pod {pod} no longer exists, and it did not report how it ended")


def abandoned(pod: Pod, container: str, deleted_s: float) -> PodFailure | None:
    """Why a deleted pod counts as lost: its node has not ended it. None while it may still do so.

    Args:
        pod: the pod, with `metadata.deletionTimestamp`: the end of its grace period by the clock of the API server.
        container: the container that does the work.
        deleted_s: for how long whoever asks has seen it deleted; no two machines' clocks need agree about that.
    """
    meta = pod["metadata"]
    if deleted_s < (meta.get("deletionGracePeriodSeconds") or 0) + LOST_AFTER_S:
        return None
    until = meta["deletionTimestamp"]
    what = f"pod {meta['namespace']}/{meta['name']} was to end by {until}, and its node does not answer"
    return failure_of(pod, container, "") or PodFailure("gone", what)


def failure_of(pod: Pod, container: str, shape: str) -> PodFailure | None:
    """Why a pod failed; None when the container exited by itself, and so reported the reason.

    Args:
        pod: the pod after its end.
        container: the container that does the work.
        shape: name of the pod's shape in the site file.
    """
    status = pod.get("status") or {}
    if outside := _ended_from_outside(status):
        return PodFailure(*outside, shape=shape)
    ended = _terminated(status, container)
    if ended is None:
        return None
    reason, code, message = ended.get("reason") or "", int(ended.get("exitCode", 0)), last_words(ended.get("message"))
    if reason == "OOMKilled":
        return PodFailure("OOMKilled", f"container {container} exceeded its memory limit and was killed", shape)
    if reason in START_ERRORS:
        cause = "StartError" if NO_PROGRAM.search(message) else "container"
        return PodFailure(cause, f"container {container} could not be started: {message or reason}", shape)
    if reason in LOST:
        return PodFailure("container lost", f"container {container} ended, and nobody saw how")
    return _signalled(container, code, message) if code > SIGNALLED else None


def last_words(message: str | None) -> str:
    """A container's termination message; empty when the kubelet could not read it."""
    text = (message or "").strip()
    return "" if text.startswith(UNREADABLE) else text


def _ended_from_outside(status: dict[str, Any]) -> tuple[str, str] | None:
    reason, message = status.get("reason") or "", (status.get("message") or "").strip()
    if reason == "Evicted":
        kind = "scratch" if STORAGE.match(message) else "node pressure"
        return kind, f"the pod was evicted from its node: {message or 'no reason given'}"
    if reason in POD_REASONS:
        return reason, f"the pod was stopped: {reason}: {message or 'no message'}"
    if NOT_ADMITTED.match(reason):
        return "not admitted", f"the node did not admit the pod: {reason}: {message or 'no message'}"
    return _disrupted(status)


def _disrupted(status: dict[str, Any]) -> tuple[str, str] | None:
    for each in status.get("conditions") or []:
        if each["type"] == DISRUPTION and each["status"] == "True" and each.get("reason") in CAUSES:
            return each["reason"], f"the pod was ended from outside: {each.get('message') or each['reason']}"
    return None


def _terminated(status: dict[str, Any], container: str) -> dict[str, Any] | None:
    for each in status.get("containerStatuses") or []:
        if each["name"] == container:
            ended: dict[str, Any] | None = (each.get("state") or {}).get("terminated")
            return ended
    return None


def _signalled(container: str, code: int, message: str) -> PodFailure | None:
    """Describe a container killed by a signal: it wrote no message, so Kubernetes shows the end of its log."""
    number = code - SIGNALLED
    try:
        name = signal.Signals(number).name
    except ValueError:
        return None
    kind = name if name in CAUSES else "signal"
    line = message.splitlines()[-1].strip()[-LINE_CHARS:] if message else ""
    log = f" (the last line of its log: {line})" if line else ""
    return PodFailure(kind, f"container {container} was killed by signal {number} ({name}){log}")
