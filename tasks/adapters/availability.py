"""Waits until a workload is available, and gives up with the pods' own explanation when it cannot become so."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from tasks.adapters import pod_state, workload_state
from tasks.adapters.clock import Clock
from tasks.adapters.workload_state import LEADER_WORKER_SET, SET_NAME
from tasks.contracts.errors import InputError, UnavailableError
from tasks.contracts.pod_starts import StartWatch, unscheduled

log = logging.getLogger(__name__)

Document = dict[str, Any]
"""A Kubernetes object as JSON."""

REVISION = "deployment.kubernetes.io/revision"
POD_TEMPLATE = "pod-template-hash"
"""The Deployment controller tells the pods of one generation from those of another by these."""

POLL_S = 0.5
REPORT_EVERY_S = 10.0
STARTS_EVERY_S = 3.0
UNSCHEDULABLE_AFTER_S = 600.0  # an autoscaler takes up to ten minutes to add a GPU node
QUOTED_CHARS = 256
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

    def warning_events(self, pod: str) -> list[Document]:
        """The pod's warning events, oldest first."""

    def log_tail(self, pod: str, container: str) -> str:
        """The last lines that a container printed."""


@dataclass
class Wait:
    """One wait for one workload."""

    cluster: Namespace
    clock: Clock
    kind: str
    name: str
    timeout_s: float
    watches: dict[str, StartWatch] = field(default_factory=dict)

    def run(self) -> None:
        """Return once every replica of the newest generation is available and no older one is left.

        Raises:
            InputError: a pod cannot start and never will; its last words are in the message.
            UnavailableError: no node has room for a pod, or the workload is not available after `timeout_s`.
        """
        began = reported = checked_starts = self.clock.monotonic()
        while True:
            workload = self.cluster.get(self.kind, self.name)
            if workload is None:
                raise InputError(
                    f"{self.kind} {self.cluster.namespace}/{self.name} does not exist",
                    remedy="Clear the task roll-out.",
                )
            if workload_state.is_available(workload):
                return
            pods, now = self._newest_pods(workload), self.clock.monotonic()
            self._raise_if_hopeless(pods, now - began)
            if now - checked_starts >= STARTS_EVERY_S:
                checked_starts = now
                self._raise_if_stuck(pods, now)
            if now - began > self.timeout_s:
                self._give_up(workload, pods)
            if now - reported >= REPORT_EVERY_S:
                reported = now
                waited = f"{now - began:.0f} of at most {self.timeout_s:.0f} s"
                log.info("%s: waited %s: %s", self.name, waited, pod_state.summary(pods))
            self.clock.sleep(POLL_S)

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

    def _raise_if_hopeless(self, pods: Iterable[Document], waited_s: float) -> None:
        for pod in pods:
            if trouble := pod_state.trouble(pod):
                output = trouble.message or self.cluster.log_tail(trouble.pod, trouble.container) or "no output"
                log.error("last output of %s, container %s:\n%s", trouble.pod, trouble.container, output)
                raise InputError(
                    f"pod {trouble.pod}, container {trouble.container} ended ({trouble.reason}): {_last_line(output)}",
                    remedy=SEE_LOGS,
                )
            reason = unscheduled(pod)
            if reason and waited_s > UNSCHEDULABLE_AFTER_S:
                raise UnavailableError(
                    f"pod {pod['metadata']['name']} was not scheduled within {waited_s:.0f} s: {_last_line(reason)}",
                    remedy="Add nodes, or request less in the site's shape.",
                )

    def _raise_if_stuck(self, pods: Iterable[Document], now: float) -> None:
        """A pod that lacks a Secret, a ConfigMap or an image never starts, however long it is given."""
        for pod in pods:
            metadata = pod["metadata"]
            if (pod.get("status") or {}).get("phase") != "Pending":
                continue
            watch = self.watches.setdefault(metadata["uid"], StartWatch())
            if failure := watch.look(pod, self.cluster.warning_events(metadata["name"]), now):
                error = UnavailableError if failure.retry else InputError
                raise error(f"pod {metadata['name']}: {failure.what.rstrip('.')}", remedy=failure.remedy)

    def _give_up(self, workload: Document, pods: list[Document]) -> NoReturn:
        details = [pod_state.summary(pods)]
        for pod, container, message in list(pod_state.waiting_for(pods))[:1]:
            output = message or self.cluster.log_tail(pod, container) or "no output"
            details.append(f"last output of {container}: {_last_line(output)}")
        events = [event for pod in pods for event in self.cluster.warning_events(pod["metadata"]["name"])]
        for event in events:
            log.error("event: %s: %s", event["reason"], event["message"])
        details += [_last_line(f"{event['reason']}: {event['message']}") for event in events[-1:]]
        raise UnavailableError(
            f"{self.kind} {self.cluster.namespace}/{workload['metadata']['name']} is not available after "
            f"{self.timeout_s:.0f} s (serving.ready_timeout_s)",
            found="; ".join(details),
            remedy=SEE_LOGS,
        )


def _annotations(item: Document) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}


def _last_line(text: str) -> str:
    """The end of a text on one line: the reason comes last."""
    line = " ".join(text.split())
    return line if len(line) <= QUOTED_CHARS else f"...{line[-QUOTED_CHARS:]}"
