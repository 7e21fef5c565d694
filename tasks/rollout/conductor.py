"""Observes, asks the machine for the next move, makes it, and looks again: the loop around machine.py."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tasks.adapters.kube import Cluster
from tasks.adapters.workspace import Workspace
from tasks.contracts.channel import Channel
from tasks.contracts.errors import ConflictError, InputError, PipelineError, UnavailableError
from tasks.contracts.release import Release
from tasks.rollout import serving
from tasks.rollout.channel_store import ChannelStore
from tasks.rollout.machine import Goal, Move, Observed, next_move, to_retire

log = logging.getLogger(__name__)

LEASE_S = 1800  # and the time that a candidate may take to become ready
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

    @property
    def lease(self) -> str:
        """Name of the model's lease."""
        return f"slipway-{self.model}"

    def take_lease(self) -> None:
        """Make this run the only one that changes the model; renews what it has.

        Raises:
            ConflictError: another run is at it.
        """
        other = self.cluster.acquire_lease(self.lease, self.run, LEASE_S + self.release.spec.serving.ready_timeout_s)
        if other is not None:
            raise ConflictError(
                f"a release of {self.model} is in progress: run {other.holder} has held it since "
                f"{other.since:%Y-%m-%d %H:%M:%S} UTC. Wait until it ends. If it was killed, run `python -m tasks "
                f"roll-back` for it, or wait until its hold ends at {other.until:%H:%M:%S} UTC."
            )

    def keep_lease(self) -> None:
        """Renew what roll-out took, also after it expired, unless another run had the model meanwhile.

        Raises:
            ConflictError: one had: what this run measured may have been the other one's candidate.
        """
        holder = self.cluster.lease_holder(self.lease)
        if holder is None or holder.holder != self.run:
            taken = f"run {holder.holder} took it at {holder.since:%H:%M:%S} UTC" if holder else "nobody holds it now"
            raise ConflictError(
                f"run {self.run} no longer holds {self.model}: {taken}. What it measured may be another release's "
                "candidate, so it promotes nothing. Run the release again."
            )
        self.take_lease()

    def drop_lease(self) -> None:
        """Let the next run have the model."""
        self.cluster.release_lease(self.lease, self.run)

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
        labels = {serving.MODEL_LABEL: self.model}
        deployments = {item["metadata"]["name"]: item for item in self.cluster.find("Deployment", labels)}
        channel = self.channel.read()
        entries = [channel.live, *channel.previous]
        mine = deployments.get(self.release.id)
        return Observed(
            release=self.release.id,
            deployed=frozenset(deployments),
            current=goal is Goal.ROLL_OUT and mine is not None and _manifest(mine) == _manifest(self._rendered()[0]),
            available=mine is not None and self.cluster.is_available(mine),
            live_selects=self._selected(self.model),
            candidate_selects=self._selected(f"{self.model}-candidate"),
            live_endpoints_settled=self._settled(),
            channel_live=channel.live.release_id if channel.live else None,
            kept=frozenset(entry.release_id for entry in entries if entry),
        )

    def _make(self, move: Move, goal: Goal, seen: Observed, change: Callable[[Channel], Channel]) -> str:
        if move in {Move.POINT_CANDIDATE, Move.POINT_LIVE}:
            return self._point(self.release.id, candidate=move is Move.POINT_CANDIDATE)
        makes: dict[Move, Callable[[], str]] = {
            Move.DEPLOY: self._deploy,
            Move.AWAIT_AVAILABLE: self._await_available,
            Move.AWAIT_ENDPOINTS: self._await_endpoints,
            Move.SWAP_CHANNEL: lambda: self._swap(goal, change),
            Move.RESTORE_LIVE: lambda: self._restore(seen.channel_live),
            Move.DROP_CANDIDATE: self._drop_candidate,
            Move.RETIRE: lambda: self._retire(sorted(to_retire(goal, seen))),
        }
        return makes[move]()

    def _rendered(self) -> list[serving.Document]:
        templates = self.workspace.manifests / "serving"
        return serving.deployment(self.release, self.release_uri, self.workspace.site, templates)

    def _deploy(self) -> str:
        objects = self._rendered()
        if not any(item["kind"] == DISRUPTION_BUDGET for item in objects):
            self.cluster.delete(DISRUPTION_BUDGET, self.release.id)
        self.cluster.apply(objects)
        return f"deployed {self.release.id}"

    def _point(self, release_id: str, *, candidate: bool) -> str:
        site, templates = self.workspace.site, self.workspace.manifests / "serving"
        objects = serving.service(release_id, self.release.spec, site, templates, candidate=candidate)
        self.cluster.apply(objects)
        return f"Service {objects[0]['metadata']['name']} selects {release_id}"

    def _await_available(self) -> str:
        self.cluster.wait_available(self.release.id, self.release.spec.serving.ready_timeout_s)
        return f"{self.release.id} is available"

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
            item = self.cluster.get("Deployment", self.release.id)
            if item is None or not self.cluster.is_available(item):
                raise InputError(
                    f"{self.release.id} stopped being available {passed_s:.0f} s after it took the traffic "
                    f"(rollout.bake_s is {bake_s}). It is rolled back; its pods' logs say why."
                )
            log.info("%s has served for %.0f of %d s", self.release.id, passed_s, bake_s)
            clock.sleep(min(BAKE_LOOK_S, bake_s - passed_s))
            self.take_lease()

    def _restore(self, live: str | None) -> str:
        if live is not None:
            return self._point(live, candidate=False)
        self.cluster.delete("Service", self.model)
        return f"Service {self.model} is removed: nothing was live before"

    def _drop_candidate(self) -> str:
        self.cluster.delete("Service", f"{self.model}-candidate")
        return f"Service {self.model}-candidate is removed"

    def _retire(self, releases: list[str]) -> str:
        for name in releases:
            self.cluster.delete(DISRUPTION_BUDGET, name)
            self.cluster.delete("Deployment", name)
        return f"retired {', '.join(releases)}"

    def _selected(self, service: str) -> str | None:
        found = self.cluster.get("Service", service)
        return None if found is None else (found["spec"].get("selector") or {}).get(serving.RELEASE_LABEL)

    def _settled(self) -> bool:
        labels = {serving.MODEL_LABEL: self.model, serving.RELEASE_LABEL: self.release.id}
        mine, reached = set(self.cluster.ready_pods(labels)), self.cluster.endpoints(self.model)
        return bool(reached) and reached <= mine


def _manifest(deployment: serving.Document) -> str | None:
    return (deployment["metadata"].get("annotations") or {}).get(serving.MANIFEST)
