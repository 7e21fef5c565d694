"""Waits until a workload is available, and gives up with the pods' own explanation when it cannot become so."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.kube import pod_state, workload_state
from slipway.tasks.adapters.kube.workload_state import LEADER_WORKER_SET, SET_NAME
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.pods import refusals, start_phases
from slipway.tasks.contracts.pods.last_words import last_words
from slipway.tasks.contracts.pods.pod_starts import StartWatch
from slipway.tasks.contracts.pods.start_phases import PhaseClock, StartPhase
from slipway.tasks.contracts.site.site import StartBudget

log = logging.getLogger(__name__)

Document = dict[str, Any]
"""A Kubernetes object as JSON."""

REVISION = "deployment.kubernetes.io/revision"
POD_TEMPLATE = "pod-template-hash"
"""The Deployment controller tells the pods of one generation from those of another by these."""

POLL_S = 0.5
REPORT_EVERY_S = 10.0
STARTS_EVERY_S = 3.0
REFUSED_FOR_S = 20.0
"""How long a refusal of pods must stand: a control plane that is starting refuses what it allows a moment later."""
ASK_AGAIN_EVERY_S = 30.0
ASKED_AGAIN = "slipway.dev/asked-again-at"
"""Annotation of a workload whose pods a quota refused. The ReplicaSet controller tries again after pauses that double
up to 1,000 s (workqueue of client-go, Kubernetes 1.36), and at once when its ReplicaSet changes, to which the
Deployment controller copies annotations."""
SERVERS_SHAPE = "of its servers"
SEE_LOGS = "See the pod's log and events."


class Namespace(Protocol):
    """What the wait reads of the serving namespace."""

    @property
    def namespace(self) -> str:
        """The namespace's name."""

    def get(self, kind: str, name: str) -> Document | None:
        """An object; None when it is absent."""

    def find(self, kind: str, labels: dict[str, str]) -> list[Document]:
        """Objects that carry every label."""

    def annotate(self, kind: str, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of an object."""

    def events(self, name: str) -> list[Document]:
        """Events of the object with this name, oldest first."""

    def log_tail(self, pod: str, container: str) -> str:
        """The last lines that a container printed."""


@dataclass
class Wait:
    """One wait for one workload."""

    cluster: Namespace
    clock: Clock
    kind: str
    name: str
    ready_timeout_s: float
    """Seconds for the program in the pods, after they have nodes and images."""
    budget: StartBudget
    """Time for nodes, and for images."""
    watches: dict[str, StartWatch] = field(default_factory=dict)
    refused_at: float | None = None
    """Since when the cluster has refused pods."""
    asked_at: float | None = None
    """When the cluster was last made to ask a quota again."""

    def run(self) -> None:
        """Return once every replica of the newest generation is available and no older one is left.

        The time of all pods counts in the earliest phase (start_phases.py) that one of them is in.

        Raises:
            InputError: a pod cannot start and never will, and its last words are in the message; the cluster refuses
                pods, for another reason than a quota; or the LeaderWorkerSet controller is too old.
            UnavailableError: a phase used up its time. The message names the phase.
        """
        phases = PhaseClock(
            {
                StartPhase.SCHEDULE: self.budget.schedule_s,
                StartPhase.PULL: self.budget.pull_s,
                StartPhase.RUN: self.ready_timeout_s,
            }
        )
        reported = checked_starts = self.clock.monotonic()
        while True:
            workload = self.cluster.get(self.kind, self.name)
            if workload is None:
                raise InputError(
                    f"{self.kind} {self.cluster.namespace}/{self.name} does not exist",
                    remedy="Clear the task roll-out.",
                )
            if workload_state.is_available(workload):
                return
            if workload_state.lacks_generation(workload):
                raise InputError(
                    f"the status of {self.kind} {self.cluster.namespace}/{self.name} does not name the generation that "
                    "it describes",
                    found="a LeaderWorkerSet controller older than v0.9",
                    expected="v0.9 or later",
                    remedy="Update the controller (https://lws.sigs.k8s.io), then clear the task roll-out.",
                )
            pods, now = self._newest_pods(workload), self.clock.monotonic()
            self._raise_if_hopeless(pods)
            if now - checked_starts >= STARTS_EVERY_S:
                checked_starts = now
                self._raise_if_stuck(pods, now)
            refused = workload_state.refused_pods(workload)
            self._raise_if_refused(refused, now)
            self._ask_again(refused, now)
            # a replica that was refused has no pod, and waits all the same
            phase = StartPhase.SCHEDULE if refused else start_phases.latest_phase(pods)
            changed = phases.look(phase, now)
            if phases.is_late:
                self._give_up(workload, pods, phases)
            if changed or now - reported >= REPORT_EVERY_S:
                reported = now
                self._report(workload, pods, phases)
            self.clock.sleep(POLL_S)

    def _report(self, workload: Document, pods: list[Document], phases: PhaseClock) -> None:
        why = self._reason(workload, pods, phases)
        log.info("%s: %s: %s%s", self.name, phases.progress(), pod_state.summary(pods), f": {why}" if why else "")

    def _reason(self, workload: Document, pods: list[Document], phases: PhaseClock) -> str:
        """Why the workload is still in its phase, in the cluster's own words."""
        if refused := workload_state.refused_pods(workload):
            return refused
        if not pods:
            last = [_event(event) for event in self.cluster.events(self.name) if event["type"] == "Warning"][-1:]
            return last[0] if last else ""
        waiting = next((pod for pod in pods if start_phases.phase_of(pod) is phases.phase), pods[0])
        return start_phases.reason(waiting, self.cluster.events(waiting["metadata"]["name"]))

    def _newest_pods(self, workload: Document) -> list[Document]:
        """Pods of the newest generation: the trouble of an older one says nothing about this one."""
        if workload["kind"] == LEADER_WORKER_SET:
            return workload_state.newest_of_set(self.cluster.find("Pod", {SET_NAME: workload["metadata"]["name"]}))
        labels, revision = workload["spec"]["selector"]["matchLabels"], _annotations(workload).get(REVISION)
        for replica_set in self.cluster.find("ReplicaSet", labels):
            if revision and _annotations(replica_set).get(REVISION) == revision:
                template = replica_set["metadata"]["labels"][POD_TEMPLATE]
                return self.cluster.find("Pod", {**labels, POD_TEMPLATE: template})
        return []

    def _raise_if_hopeless(self, pods: Iterable[Document]) -> None:
        for pod in pods:
            if trouble := pod_state.trouble(pod):
                output = trouble.message or self.cluster.log_tail(trouble.pod, trouble.container) or "no output"
                said = last_words(output.splitlines()).rstrip(".")
                log.error("last output of %s, container %s:\n%s", trouble.pod, trouble.container, output)
                raise InputError(
                    f"pod {trouble.pod}, container {trouble.container} ended ({trouble.reason}): {said}",
                    remedy=SEE_LOGS,
                )

    def _raise_if_refused(self, words: str, now: float) -> None:
        if not refusals.lasts(words):
            self.refused_at = None
            return
        self.refused_at = now if self.refused_at is None else self.refused_at
        if now - self.refused_at >= REFUSED_FOR_S:
            namespace = self.cluster.namespace
            raise InputError(
                f"{self.kind} {namespace}/{self.name}: the cluster refuses its pods: {words.rstrip('.')}",
                remedy=f"{refusals.remedy(words, namespace, SERVERS_SHAPE)} Then start the release again.",
            )

    def _ask_again(self, words: str, now: float) -> None:
        """Let the cluster try soon whether a quota has room by now."""
        self.asked_at = now if self.asked_at is None else self.asked_at
        if start_phases.EXCEEDED in words and now - self.asked_at >= ASK_AGAIN_EVERY_S:
            self.asked_at = now
            self.cluster.annotate(self.kind, self.name, {ASKED_AGAIN: self.clock.now().isoformat()})

    def _raise_if_stuck(self, pods: Iterable[Document], now: float) -> None:
        """A pod that lacks a Secret, a ConfigMap or an image never starts, however long it is given."""
        for pod in pods:
            metadata = pod["metadata"]
            if (pod.get("status") or {}).get("phase") != "Pending":
                continue
            watch = self.watches.setdefault(metadata["uid"], StartWatch())
            if failure := watch.look(pod, _warnings(self.cluster.events(metadata["name"])), now):
                error = UnavailableError if failure.retry else InputError
                raise error(f"pod {metadata['name']}: {failure.what.rstrip('.')}", remedy=failure.remedy)

    def _give_up(self, workload: Document, pods: list[Document], phases: PhaseClock) -> NoReturn:
        name = f"{self.kind} {self.cluster.namespace}/{workload['metadata']['name']}"
        if phases.phase is not StartPhase.RUN:
            # no pod at all counts as one without a node: a quota, or a controller that is down
            pod = next((pod for pod in pods if start_phases.phase_of(pod) is phases.phase), None) or _template(workload)
            if start_phases.EXCEEDED in (refused := workload_state.refused_pods(workload)):
                failure = start_phases.over_quota(pod, phases.spent_s[phases.phase], refused)
                raise UnavailableError(f"{name}: {failure.what.rstrip('.')}", remedy=failure.remedy)
            failure = start_phases.late(pod, phases, self._reason(workload, pods, phases))
            raise UnavailableError(f"{name}: {failure.what.rstrip('.')}", remedy=failure.remedy)
        details = [pod_state.summary(pods)]
        for name_of_pod, container, message in list(pod_state.waiting_for(pods))[:1]:
            output = message or self.cluster.log_tail(name_of_pod, container) or "no output"
            details.append(f"last output of {container}: {last_words(output.splitlines())}")
        events = [event for pod in pods for event in _warnings(self.cluster.events(pod["metadata"]["name"]))]
        for event in events:
            log.error("event: %s", _event(event))
        details += [last_words([_event(event)]) for event in events[-1:]]
        raise UnavailableError(
            f"{name} is not available after {phases.spent_s[StartPhase.RUN]:.0f} s with nodes and images "
            "(serving.ready_timeout_s)",
            found="; ".join([*details, phases.progress()]),
            remedy=SEE_LOGS,
        )


def _warnings(events: Iterable[Document]) -> list[Document]:
    return [event for event in events if event["type"] == "Warning"]


def _event(event: Document) -> str:
    return f"{event['reason']}: {event['message']}"


def _template(workload: Document) -> Document:
    """A pod as the workload would create it, with the workload's own name."""
    spec = workload["spec"]
    template = spec["template"] if "template" in spec else spec["leaderWorkerTemplate"]["workerTemplate"]
    return {"metadata": {"name": f"of {workload['metadata']['name']}"}, "spec": template["spec"]}


def _annotations(item: Document) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}
