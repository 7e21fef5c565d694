"""check-network: measure the network between the nodes of a release that spans several, before it is rolled out."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from slipway.tasks.adapters.kube import pod_state, workload_state
from slipway.tasks.adapters.kube.kube import Cluster, Document
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.base import canonical_json, read_contract_json
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.fit.placement import GPU_PRODUCT
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.pods import start_phases
from slipway.tasks.contracts.pods.pod_failures import last_words
from slipway.tasks.contracts.pods.start_phases import PhaseClock, StartPhase
from slipway.tasks.contracts.site.network_check import AllReduce, NetworkFloor, NetworkRecord, NodeIdentity
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.serving.rendered import network_check

log = logging.getLogger(__name__)

POLL_S = 2.0
GONE_TIMEOUT_S = 120.0
"""Pods of a measurement have 5 s to end; the garbage collector and a busy node take the rest."""
REPORT_EVERY_S = 10.0
SEE_PODS = "Read the output above. The pods of the measurement are deleted; run the step again to see them."


def run(release: Release, workspace: Workspace) -> Outcome:
    """Measure the all-reduce bandwidth between nodes, with the image and resources of the release, and judge it.

    Nothing is measured for a release on one node, without a floor in the site file, or when all nodes that are present
    passed with the same image within the hours that the site allows.

    Raises:
        InputError: the network is slower than the floor, or corrupts data.
        UnavailableError: the pods did not start in time, or did not reach each other.
    """
    resolved = ResolvedRelease(release.spec, workspace.site)
    where = resolved.serving
    if where.nodes == 1:
        return Outcome("the release is served on one node, so there is no network to measure", {})
    product, floor = resolved.gpu.name, resolved.gpu.facts.network
    if floor is None:
        return Outcome(f"the site has no gpus.{product}.network, so the network was not measured", {})
    cluster, uri = workspace.cluster(), workspace.layout.network(product)
    now = workspace.clock.now()
    if workspace.store.exists(uri):
        record = read_contract_json(NetworkRecord, workspace.store.read_bytes(uri), uri)
        present = [_identity(node) for node in cluster.nodes({GPU_PRODUCT: product})]
        if record.covers(where.image, present, where.nodes, now, floor.valid_h):
            summary = f"{record.gb_per_s:.1f} GB/s between the same nodes at {record.measured_at:%Y-%m-%d %H:%M} UTC"
            return Outcome(f"not measured again: {summary}", record.model_dump(mode="json"), stored=True)
    measured, nodes = Measurement(release, floor, workspace, cluster).run()
    record = NetworkRecord(image=where.image, nodes=nodes, gb_per_s=measured.bus_gb_per_s, measured_at=now)
    data = {**record.model_dump(mode="json"), **measured.model_dump(mode="json"), "min_gb_per_s": floor.min_gb_per_s}
    workspace.evidence(release).write("network.json", data)
    names = ", ".join(node.name for node in nodes)
    if measured.bus_gb_per_s < floor.min_gb_per_s:
        raise InputError(
            f"the network between {names} is slower than gpus.{product}.network allows",
            found=f"{measured.bus_gb_per_s:.2f} GB/s over {measured.ranks} GPUs",
            expected=f"at least {floor.min_gb_per_s:g} GB/s",
            remedy="Check that EFA is used (NCCL_DEBUG=INFO in the image says so), that the nodes are in one placement "
            "group, and gpus.<product>.efa; or lower the floor.",
        )
    workspace.store.put_bytes(uri, canonical_json(record.model_dump(mode="json")))
    return Outcome(f"{measured.bus_gb_per_s:.1f} GB/s over {measured.ranks} GPUs of {names}", data)


@dataclass(frozen=True)
class Measurement:
    """One measurement: a LeaderWorkerSet that exists only while it lasts."""

    release: Release
    floor: NetworkFloor
    workspace: Workspace
    cluster: Cluster

    def run(self) -> tuple[AllReduce, tuple[NodeIdentity, ...]]:
        """Start the pods, wait for the result, and delete the pods whatever happens."""
        templates = self.workspace.manifests / "serving"
        name = network_check.name_of(self.release)
        kind = workload_state.LEADER_WORKER_SET
        self.cluster.delete(kind, name)  # of a killed run
        self._await_gone(name)
        self.cluster.apply(network_check.workload(self.release, self.floor, self.workspace.site, templates))
        try:
            return self._result(name)
        finally:
            self.cluster.delete(kind, name)

    def _pods(self) -> list[Document]:
        return self.cluster.find("Pod", {network_check.CHECK_LABEL: self.release.id})

    def _await_gone(self, name: str) -> None:
        """Wait until no pod of an earlier measurement is left: its result would be read as this one's."""
        clock = self.workspace.clock
        began = clock.monotonic()
        while pods := self._pods():
            if clock.monotonic() - began > GONE_TIMEOUT_S:
                raise UnavailableError(
                    f"pods of an earlier {name} are still there after {GONE_TIMEOUT_S:.0f} s",
                    found=", ".join(pod["metadata"]["name"] for pod in pods),
                    remedy="Check that their node answers, and that the LeaderWorkerSet controller runs; then run the "
                    "step again.",
                )
            clock.sleep(POLL_S)

    def _result(self, name: str) -> tuple[AllReduce, tuple[NodeIdentity, ...]]:
        budget = self.workspace.site.budgets.gpu
        clock = self.workspace.clock
        phases = PhaseClock(
            {
                StartPhase.SCHEDULE: budget.schedule_s,
                StartPhase.PULL: budget.pull_s,
                StartPhase.RUN: self.floor.timeout_s,
            }
        )
        reported = clock.monotonic()
        while True:
            pods, now = self._pods(), clock.monotonic()
            for pod in pods:
                if ended := _ended(pod):
                    return self._read(pod, ended), self._nodes(pods)
            changed = phases.look(start_phases.latest_phase(pods), now)
            if phases.is_late:
                raise self._late(name, pods, phases)
            if changed or now - reported >= REPORT_EVERY_S:
                reported = now
                log.info("%s: %s: %s", name, phases.progress(), pod_state.summary(pods))
            clock.sleep(POLL_S)

    def _late(self, name: str, pods: list[Document], phases: PhaseClock) -> UnavailableError:
        slowest = next((pod for pod in pods if start_phases.phase_of(pod) is phases.phase), None)
        if slowest is None or phases.phase is StartPhase.RUN:
            return UnavailableError(
                f"{name} has no result: {phases.progress()}",
                found=pod_state.summary(pods),
                remedy="See the events of the LeaderWorkerSet; check that its controller runs, and timeout_s of "
                "gpus.<product>.network.",
            )
        why = start_phases.reason(slowest, self.cluster.events(slowest["metadata"]["name"]))
        failure = start_phases.late(slowest, phases, why)
        return UnavailableError(failure.what, remedy=failure.remedy)

    def _read(self, pod: Document, ended: Document) -> AllReduce:
        name, message = pod["metadata"]["name"], last_words(ended.get("message"))
        if ended.get("exitCode") == 0:
            return read_contract_json(AllReduce, message.encode(), f"result of pod {name}")
        output = self.cluster.log_tail(name, network_check.LEADER) or message or "no output"
        log.error("last output of %s:\n%s", name, output)
        error = InputError if ended.get("exitCode") == InputError.exit_code else UnavailableError
        raise error(
            f"the network could not be measured: pod {name} ended with exit code {ended.get('exitCode')}",
            found=output[-500:],
            remedy=SEE_PODS,
        )

    def _nodes(self, pods: Sequence[Document]) -> tuple[NodeIdentity, ...]:
        used = {pod["spec"].get("nodeName") for pod in pods}
        product = self.release.spec.engine.gpu or ""
        nodes = [_identity(node) for node in self.cluster.nodes({GPU_PRODUCT: product})]
        return tuple(sorted((node for node in nodes if node.name in used), key=lambda node: node.name))


def _ended(pod: Document) -> Document | None:
    """How the leader's container ended; it is started again at once, and then its end is the last state."""
    for status in (pod.get("status") or {}).get("containerStatuses") or []:
        if status["name"] == network_check.LEADER:
            state, last = status.get("state") or {}, status.get("lastState") or {}
            ended: Document | None = state.get("terminated") or last.get("terminated")
            return ended
    return None


def _identity(node: Document) -> NodeIdentity:
    return NodeIdentity(name=node["metadata"]["name"], uid=node["metadata"]["uid"])
