"""Observes, asks the machine for the next move, makes it, and looks again: the loop around machine.py."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tasks.adapters.kube import Cluster
from tasks.adapters.workload_state import is_available
from tasks.adapters.workspace import Workspace
from tasks.contracts.base import read_contract_json
from tasks.contracts.channel import Channel, ChannelEntry
from tasks.contracts.errors import InputError, PipelineError, UnavailableError
from tasks.contracts.release import Release
from tasks.rollout import hosting, serving
from tasks.rollout.channel_store import ChannelStore
from tasks.rollout.hold import Hold
from tasks.rollout.hosting import Host
from tasks.rollout.machine import Goal, Move, Observed, next_move, to_retire

log = logging.getLogger(__name__)

MOST_MOVES = 20
ENDPOINTS_TIMEOUT_S = 60.0
POLL_S = 0.2
BAKE_LOOK_S = 5.0
DISRUPTION_BUDGET = "PodDisruptionBudget"


@dataclass(frozen=True)
class Conductor:
    """Moves one release of a model. Every method may be called again after it was cut short."""

    release: Release
    release_uri: str
    run: str
    workspace: Workspace
    cluster: Cluster

    @classmethod
    def of(cls, release: Release, workspace: Workspace, *, run: str | None = None) -> "Conductor":
        """For a release as the workspace's store has it; `run` is the release's own unless another acts on it."""
        uri = workspace.layout.release(release.spec.name, release.id)
        return cls(release, uri, run or release.plan.run, workspace, workspace.cluster())

    @property
    def model(self) -> str:
        """Name of the model, of its live Service, and of its channel."""
        return self.release.spec.name

    @property
    def channel(self) -> ChannelStore:
        """The model's channel."""
        return ChannelStore(self.workspace.store, self.workspace.layout, self.model)

    @cached_property
    def host(self) -> Host:
        """The server that holds the release. Who else is in it cannot change while this run holds the model.

        Look at it only then.
        """
        return hosting.host_of(self.release, self.release_uri, self.workspace)

    @property
    def hold(self) -> Hold:
        """This run's hold on the model."""
        return Hold(self.release.spec, self.run, self.cluster, self.workspace.clock)

    def reach(self, goal: Goal, change: Callable[[Channel], Channel] = lambda channel: channel) -> list[str]:
        """Move until the goal is reached.

        Args:
            goal: where to.
            change: what SWAP_CHANNEL does to the channel.

        Returns:
            The moves made, in words.
        """
        made: list[str] = []
        for _ in range(MOST_MOVES):
            seen = self.observe(goal)
            move = next_move(goal, seen)
            if move is None:
                return made
            log.info("%s: %s", goal, move)
            made.append(self._make(move, goal, seen, change))
        raise PipelineError(
            f"{goal} of {self.release.id} is not reached after {MOST_MOVES} moves ({', '.join(made[-3:])}). "
            "Does something else change the model's Deployments or Services?"
        )

    def observe(self, goal: Goal) -> Observed:
        """The model as it stands in cluster and channel. Only a roll-out asks whether the manifest is today's."""
        standing = self._standing()
        channel = self.channel.read()
        kept = {entry.release_id for entry in (channel.live, *channel.previous) if entry}
        mine = standing.get(self.host.name)
        return Observed(
            release=self.release.id,
            server=self.host.name,
            deployed=frozenset(standing),
            current=goal is Goal.ROLL_OUT
            and mine is not None
            and _manifest(mine) == _manifest(self.host.rendered()[0]),
            available=mine is not None and is_available(mine),
            live_selects=self._selected(self.model),
            candidate_selects=self._selected(f"{self.model}-candidate"),
            live_endpoints_settled=self._settled(),
            channel_live=channel.live.release_id if channel.live else None,
            kept=self.host.needed(lambda: self._live(channel)) | kept,
        )

    def _make(self, move: Move, goal: Goal, seen: Observed, change: Callable[[Channel], Channel]) -> str:
        if move in {Move.POINT_CANDIDATE, Move.POINT_LIVE}:
            return self._point(self.release, self.release_uri, candidate=move is Move.POINT_CANDIDATE)
        makes: dict[Move, Callable[[], str]] = {
            Move.DEPLOY: self._deploy,
            Move.AWAIT_AVAILABLE: self._await_available,
            Move.AWAIT_ENDPOINTS: self._await_endpoints,
            Move.SWAP_CHANNEL: lambda: self._swap(goal, change),
            Move.RESTORE_LIVE: self._restore,
            Move.DROP_CANDIDATE: self._drop_candidate,
            Move.RETIRE: lambda: self._retire(sorted(to_retire(goal, seen))),
        }
        return makes[move]()

    def _standing(self) -> dict[str, serving.Document]:
        """Workloads that a roll-out of the model looks after, by name."""
        found = [
            item
            for labels in self.host.selectors
            for kind in serving.WORKLOADS
            for item in self.cluster.find(kind, labels)
        ]
        return {item["metadata"]["name"]: item for item in found}

    def _live(self, channel: Channel) -> Release | None:
        return self._read(channel.live) if channel.live else None

    def _read(self, entry: ChannelEntry) -> Release:
        if entry.release_id == self.release.id:
            return self.release
        return read_contract_json(Release, self.workspace.store.read_bytes(entry.release_uri), entry.release_uri)

    def _deploy(self) -> str:
        objects = self.host.rendered()
        if not any(item["kind"] == DISRUPTION_BUDGET for item in objects):
            self.cluster.delete(DISRUPTION_BUDGET, self.host.name)
        self.cluster.apply(objects)
        return f"deployed {self.host.name}"

    def _point(self, release: Release, release_uri: str, *, candidate: bool) -> str:
        objects = hosting.service(release, release_uri, self.workspace, candidate=candidate)
        self.cluster.apply(objects)
        return f"Service {objects[0]['metadata']['name']} selects {release.id}"

    def _await_available(self) -> str:
        name = self.host.name
        found = self._standing().get(name)
        kind = found["kind"] if found else serving.WORKLOADS[0]
        self.cluster.wait_available(kind, name, self.host.ready_timeout_s)
        return f"{name} is available"

    def _await_endpoints(self) -> str:
        clock = self.workspace.clock
        began = clock.monotonic()
        while not self._settled():
            if clock.monotonic() - began > ENDPOINTS_TIMEOUT_S:
                raise UnavailableError(
                    f"Service {self.model} does not reach {self.release.id} alone after {ENDPOINTS_TIMEOUT_S:.0f} s. "
                    "Is the cluster's endpoint controller running?"
                )
            clock.sleep(POLL_S)
        return f"every new connection reaches {self.release.id}"

    def _swap(self, goal: Goal, change: Callable[[Channel], Channel]) -> str:
        if goal is Goal.PROMOTE:
            self._bake()
        self.channel.swap(change)
        return f"the channel names {self.release.id}"

    def _bake(self) -> None:
        """Watch the release under the live load. Until the channel names it, roll-back puts the one before it back."""
        bake_s, clock = self.release.spec.rollout.bake_s, self.workspace.clock
        began = clock.monotonic()
        while (passed_s := clock.monotonic() - began) < bake_s:
            item = self._standing().get(self.host.name)
            if item is None or not is_available(item):
                raise InputError(
                    f"{self.release.id} stopped being available {passed_s:.0f} s after it took the traffic "
                    f"(rollout.bake_s is {bake_s}). It is rolled back; its pods' logs say why."
                )
            log.info("%s has served for %.0f of %d s", self.release.id, passed_s, bake_s)
            clock.sleep(min(BAKE_LOOK_S, bake_s - passed_s))
            self.hold.take()

    def _restore(self) -> str:
        live = self.channel.read().live
        if live is not None:
            return self._point(self._read(live), live.release_uri, candidate=False)
        self.cluster.delete("Service", self.model)
        return f"Service {self.model} is removed: nothing was live before"

    def _drop_candidate(self) -> str:
        self.cluster.delete("Service", f"{self.model}-candidate")
        return f"Service {self.model}-candidate is removed"

    def _retire(self, names: list[str]) -> str:
        for name in names:
            for kind in (DISRUPTION_BUDGET, *serving.WORKLOADS):
                self.cluster.delete(kind, name)
        return f"retired {', '.join(names)}"

    def _selected(self, service: str) -> str | None:
        found = self.cluster.get("Service", service)
        return None if found is None else hosting.selected(found["spec"].get("selector") or {}, self.model)

    def _settled(self) -> bool:
        reached, new = self.cluster.endpoints(self.model), set(self.cluster.ready_pods(self.host.server_pods))
        if not reached & new or not reached <= set(self.cluster.ready_pods(self.host.release_pods)):
            return False
        return all(self._reaches(name, new) for name in self.host.neighbours)

    def _reaches(self, service: str, pods: set[str]) -> bool:
        """Whether it sends connections to one of these pods; a Service that is not there has none to lose."""
        return bool(self.cluster.endpoints(service) & pods) or self.cluster.get("Service", service) is None


def _manifest(deployment: serving.Document) -> str | None:
    return (deployment["metadata"].get("annotations") or {}).get(serving.MANIFEST)
