"""Lets a candidate start on the GPUs of the live release (`rollout.surge: none`), and gives them back afterwards.

Pods that are about to end still hold their GPUs, and a pod that finds none makes autoscalers buy a node, so whoever
comes next waits until they are gone.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.workload_state import LEADER_WORKER_SET, Workload
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.site.site import StartBudget
from slipway.tasks.rollout.act import replicas
from slipway.tasks.serving.rendered import manifests

log = logging.getLogger(__name__)

POLL_S = 0.5
SPARE_S = 60.0
"""Time for a pod to go, in addition to its grace period."""
ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True)
class SharedGpus:
    """The GPUs of one model's live release. Every method may be called again after it was cut short."""

    model: str
    cluster: Cluster
    clock: Clock

    def have_room(self, live: Workload, kept: int, candidate: str) -> bool:
        """Whether the live release has at most `kept` replicas, and nothing but these and the candidate has pods."""
        return replicas.count(live) <= kept and not self._pods_beyond({_name(live): kept * _nodes(live)}, candidate)

    def make_room(self, live: Workload, kept: int, candidate: str, stop_scaling: Callable[[], object]) -> str:
        """Scale the live release down to `kept` replicas, and wait until the other pods have ended.

        Args:
            live: its workload.
            kept: how many replicas it keeps.
            candidate: name of the workload that gets the room.
            stop_scaling: removes the live release's scaler, which would otherwise add the replicas again.

        Raises:
            UnavailableError: pods did not end within their grace period.
        """
        kind, name, before = live["kind"], _name(live), replicas.full(live)
        if not replicas.is_shrunk(live):
            self.cluster.scale(kind, name, before, {replicas.FULL_REPLICAS: str(before)})
        stop_scaling()
        if replicas.count(live) > kept:
            self.cluster.scale(kind, name, kept)
        left = self._wait_for_ends(_grace_s(live), {name: kept * _nodes(live)}, candidate)
        if left:
            raise UnavailableError(
                f"there is no room for {candidate}: pods did not end in time",
                found=_listed(left),
                remedy="See `kubectl describe pod`. The live release gets its replicas back when this run rolls back.",
            )
        return f"{name} has {kept} of {before} replicas, to make room for {candidate}"

    def give_back(self, live: Workload, ready_timeout_s: float, budget: StartBudget) -> str:
        """Give the live release the replicas that it should have, and wait until they are available.

        The annotation goes last: a run that was cut short before is observed as not finished.

        Raises:
            InputError, UnavailableError: as of Cluster.wait_available.
        """
        kind, name, wanted = live["kind"], _name(live), replicas.full(live)
        if left := self._wait_for_ends(_grace_s(live), {}, name):
            log.warning("%s still have pods; %s starts once there are GPUs for it", _listed(left), name)
        if replicas.count(live) != wanted:
            self.cluster.scale(kind, name, wanted)
        self.cluster.wait_available(kind, name, ready_timeout_s, budget)
        self.cluster.scale(kind, name, wanted, {replicas.FULL_REPLICAS: None})
        return f"{name} has all of its {wanted} replicas"

    def _wait_for_ends(self, grace_s: float, allowed: dict[str, int], besides: str) -> Counter[str]:
        """The pods that are left, by release, when nothing is left or the time is up."""
        began = self.clock.monotonic()
        while left := self._pods_beyond(allowed, besides):
            if self.clock.monotonic() - began > grace_s + SPARE_S:
                break
            self.clock.sleep(POLL_S)
        return left

    def _pods_beyond(self, allowed: dict[str, int], besides: str) -> Counter[str]:
        """How many pods each release has beyond the allowed ones; those of `besides` do not count."""
        pods = self.cluster.find("Pod", {**manifests.OWN_LABELS, manifests.NAME_LABEL: self.model})
        holding = [pod["metadata"]["labels"] for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED]
        pods_of_release = Counter(
            labels.get(manifests.RELEASE_LABEL) or labels.get(manifests.WORKER_LABEL, "") for labels in holding
        )
        del pods_of_release[besides]
        pods_of_release.subtract(allowed)
        return +pods_of_release


def _name(workload: Workload) -> str:
    return str(workload["metadata"]["name"])


def _listed(pods: Counter[str]) -> str:
    return ", ".join(f"{name} ({count} of its pods)" for name, count in sorted(pods.items()))


def _nodes(workload: Workload) -> int:
    """Pods of a replica."""
    return int(workload["spec"]["leaderWorkerTemplate"]["size"]) if workload["kind"] == LEADER_WORKER_SET else 1


def _grace_s(workload: Workload) -> float:
    spec = workload["spec"]
    template = spec["leaderWorkerTemplate"]["leaderTemplate"] if "leaderWorkerTemplate" in spec else spec["template"]
    return float(template["spec"].get("terminationGracePeriodSeconds", 30))
