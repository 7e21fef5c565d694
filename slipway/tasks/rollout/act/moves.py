"""The moves of a rollout, one method each. Every one may be made again after it was cut short."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.fit.surge import full_replicas
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.rollout.act import replicas, server_target
from slipway.tasks.rollout.act.canary_run import CanaryRun
from slipway.tasks.rollout.act.model_state import ModelState
from slipway.tasks.rollout.act.release_lock import ReleaseLock
from slipway.tasks.rollout.decide.blue_green import Goal, Move, Observed, to_retire
from slipway.tasks.serving.rendered import manifests
from slipway.tasks.serving.rendered.commands import PORTS
from slipway.tasks.serving.rendered.front import STATS_PORT

log = logging.getLogger(__name__)

ENDPOINTS_TIMEOUT_S = 60.0
POLL_S = 0.2
BAKE_LOOK_S = 5.0
DISRUPTION_BUDGET = "PodDisruptionBudget"


@dataclass(frozen=True)
class Moves:
    """What one run does to a model."""

    state: ModelState
    lock: ReleaseLock
    tell: Callable[[str, str, str], None]
    """Records an Event about a server: its name, a reason, and a message."""

    @property
    def _cluster(self) -> Cluster:
        return self.state.cluster

    def make(self, move: Move, goal: Goal, seen: Observed, change: Callable[[Channel], Channel]) -> str:
        """Make one move; the answer says what was done. `change` is what SWAP_CHANNEL does to the channel."""
        if move in {Move.POINT_CANDIDATE, Move.POINT_LIVE}:
            return self._point(self.state.release, self.state.release_uri, candidate=move is Move.POINT_CANDIDATE)
        makes: dict[Move, Callable[[], str]] = {
            Move.MAKE_ROOM: lambda: self._make_room(goal),
            Move.DEPLOY: lambda: self._deploy(goal),
            Move.AWAIT_AVAILABLE: self._await_available,
            Move.CARRY_REPLICAS: self._carry_replicas,
            Move.SHIFT_TRAFFIC: self._shift_traffic,
            Move.FOLLOW_LIVE: self._follow_live,
            Move.AWAIT_ENDPOINTS: self._await_endpoints,
            Move.SWAP_CHANNEL: lambda: self._swap(goal, change),
            Move.RESTORE_LIVE: self._restore,
            Move.AWAIT_ROUTED: self._await_routed,
            Move.DROP_CANDIDATE: self._drop_candidate,
            Move.AWAIT_LEFT: self._await_left,
            Move.RETIRE: lambda: self._retire(sorted(to_retire(goal, seen))),
            Move.GIVE_BACK: self._give_back,
        }
        return makes[move]()

    def _make_room(self, goal: Goal) -> str:
        workloads, channel = self.state.workloads(), self.state.channel.read()
        live, sharing = self.state.live(channel), self.state.shares(goal, workloads, channel)
        assert live is not None  # observe saw that room is missing
        assert sharing is not None
        self.lock.acquire()
        return self.state.shared_gpus.make_room(
            workloads[live.id],
            sharing.live,
            self.state.target.name,
            lambda: self.state.companions.put(live, scaled=False),
        )

    def _give_back(self) -> str:
        live = self.state.live(self.state.channel.read())
        assert live is not None  # observe saw its annotation
        self.lock.acquire()
        return self.state.shared_gpus.give_back(
            self.state.workloads()[live.id], live.spec.serving.ready_timeout_s, self.state.budget_of(live)
        )

    def _deploy(self, goal: Goal) -> str:
        objects = self.state.target.rendered()
        if not any(item["kind"] == DISRUPTION_BUDGET for item in objects):
            self._cluster.delete(DISRUPTION_BUDGET, self.state.target.name)
        there = self.state.workloads().get(self.state.target.name)
        if there is not None and self.state.release.spec.serving.autoscale:
            # not left out: the server would reset a field that only we had set
            objects[0]["spec"]["replicas"] = max(replicas.count(objects[0]), replicas.count(there))
        workloads, channel = self.state.workloads(), self.state.channel.read()
        if sharing := self.state.shares(goal, workloads, channel):
            assert channel.live is not None  # _shares read it
            wanted = full_replicas(self.state.release.spec, replicas.full(workloads[channel.live.release_id]))
            objects[0]["metadata"]["annotations"][replicas.FULL_REPLICAS] = str(wanted)
            objects[0]["spec"]["replicas"] = sharing.candidate
        self._cluster.apply(objects)
        return f"deployed {self.state.target.name}"

    def _point(self, release: Release, release_uri: str, *, candidate: bool) -> str:
        objects = server_target.service(
            release, release_uri, self.state.workspace.site, self.state.templates, candidate=candidate
        )
        self._cluster.apply(objects)
        return f"Service {objects[0]['metadata']['name']} selects {release.id}"

    def _await_available(self) -> str:
        name = self.state.target.name
        workload = self.state.workloads().get(name)
        kind = workload["kind"] if workload else manifests.WORKLOADS[0]
        self._cluster.wait_available(
            kind, name, self.state.target.ready_timeout_s, self.state.budget_of(self.state.release)
        )
        return f"{name} is available"

    def _await_endpoints(self) -> str:
        self._await(self.state.settled, f"Service {self.state.model} does not reach {self.state.release.id} alone")
        return f"every new connection reaches {self.state.release.id}"

    def _await_left(self) -> str:
        self._await(
            lambda: not self.state.reached(), f"Service {self.state.model} still reaches {self.state.release.id}"
        )
        return f"no new connection reaches {self.state.release.id}"

    def _await_routed(self) -> str:
        self._await(
            self.state.is_routed,
            f"no Gateway took up the newest routes of {self.state.model}",
            remedy="Check the Gateway that the site file names, and the log of its controller.",
        )
        return f"no new request is routed to {self.state.model}-candidate"

    def _await(
        self,
        holds: Callable[[], bool],
        otherwise: str,
        remedy: str = "Check that the cluster's endpoint controller is running.",
    ) -> None:
        """Wait until what others do is done."""
        clock = self.state.workspace.clock
        began = clock.monotonic()
        while not holds():
            if clock.monotonic() - began > ENDPOINTS_TIMEOUT_S:
                raise UnavailableError(f"{otherwise} after {ENDPOINTS_TIMEOUT_S:.0f} s", remedy=remedy)
            clock.sleep(POLL_S)

    def _swap(self, goal: Goal, change: Callable[[Channel], Channel]) -> str:
        if goal is Goal.PROMOTE:
            self._bake()
        self.state.channel.swap(change)
        return f"the channel names {self.state.release.id}"

    def _bake(self) -> None:
        """Watch the release under live load. Until the channel names it, roll-back restores the one before it."""
        bake_s, clock = self.state.release.spec.rollout.bake_s, self.state.workspace.clock
        began = clock.monotonic()
        while (passed_s := clock.monotonic() - began) < bake_s:
            if not self.state.still_answers():
                raise InputError(
                    f"{self.state.release.id} became unavailable {passed_s:.0f} s after it took the traffic",
                    expected=f"it to stay available for rollout.bake_s ({bake_s} s)",
                    remedy="It is rolled back; see the logs of its pods.",
                )
            log.info("%s has served for %.0f of %d s", self.state.release.id, passed_s, bake_s)
            clock.sleep(min(BAKE_LOOK_S, bake_s - passed_s))
            self.lock.acquire()

    def _shift_traffic(self) -> str:
        """Run the canary. Until it has passed, the live Service and the channel stay as they are."""
        live = self.state.known(self.state.selected(self.state.model), self.state.channel.read())
        assert live is not None  # _canary_passed saw it
        server_target.check_live_is_routed(self.state.release.spec, live)
        lines = CanaryRun(
            self.state.canary_routes(live),
            self.state.workspace.traffic(self.state.cluster, self.state.model, PORTS["metrics"], STATS_PORT),
            self.state.cluster,
            self.state.workspace.clock,
            candidate_pods=self.state.target.release_pods,
            live_pods=manifests.selector_of(self.state.model, live.id),
            keep_lock=self.lock.acquire,
            still_answers=self.state.still_answers,
            tell=lambda reason, words: self.tell(self.state.target.name, reason, words),
            evidence=self.state.workspace.evidence(self.state.release),
        ).finish()
        return " | ".join([f"{self.state.release.id} passed its canary", *lines])

    def _restore(self) -> str:
        live = self.state.channel.read().live
        if live is not None:
            release = self.state.read(live)
            self._regrow(release)
            return self._point(release, live.release_uri, candidate=False)
        self._cluster.delete("Service", self.state.model)
        return f"Service {self.state.model} is removed: nothing was live before"

    def _regrow(self, release: Release) -> None:
        """Give a release that takes the traffic back as many pods as serve now.

        They are not waited for: the release may be all that answers. One whose GPUs the candidate has waits for them.
        """
        workloads = self.state.workloads()
        if release.id in workloads and not replicas.is_shrunk(workloads[release.id]):
            self._scale(release, release.id, workloads)

    def _carry_replicas(self) -> str:
        wanted = self._scale(self.state.release, self.state.target.name, self.state.workloads())
        return f"{self.state.target.name} has {wanted} replicas, as many as serve now"

    def _scale(self, release: Release, name: str, workloads: dict[str, manifests.Document]) -> int:
        wanted = replicas.carried(release, name, workloads, self.state.selected(self.state.model))
        if wanted != replicas.count(workloads[name]):
            self._cluster.scale(workloads[name]["kind"], name, wanted)
        return wanted

    def _follow_live(self) -> str:
        live = self.state.selected(self.state.model)
        scaled = not replicas.is_shrunk(self.state.workloads().get(live or ""))
        return self.state.companions.put(self.state.known(live, self.state.channel.read()), scaled=scaled)

    def _drop_candidate(self) -> str:
        self._cluster.delete("Service", f"{self.state.model}-candidate")
        return f"Service {self.state.model}-candidate is removed"

    def _retire(self, names: list[str]) -> str:
        for name in names:
            for kind in (DISRUPTION_BUDGET, *manifests.WORKLOADS):
                self._cluster.delete(kind, name)
        return f"retired {', '.join(names)}"
