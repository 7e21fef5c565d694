"""The loop around blue_green.py: observe, decide the next move, make it, and observe again."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from slipway.tasks.adapters.kube.event_object import MoveEvent
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.lease_object import LeaseHolder
from slipway.tasks.adapters.kube.workload_state import is_available
from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.fit.surge import Shares, full_replicas, shares
from slipway.tasks.contracts.site.site import StartBudget
from slipway.tasks.contracts.stored.channel import Channel, ChannelEntry
from slipway.tasks.contracts.stored.lease import lease_of
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.rollout.act import canary_routes, replicas, server_target
from slipway.tasks.rollout.act.canary_routes import CanaryRoutes
from slipway.tasks.rollout.act.canary_run import CanaryRun
from slipway.tasks.rollout.act.channel_store import ChannelStore
from slipway.tasks.rollout.act.companions import Companions
from slipway.tasks.rollout.act.release_lock import ReleaseLock
from slipway.tasks.rollout.act.server_target import ServerTarget
from slipway.tasks.rollout.act.shared_gpus import SharedGpus
from slipway.tasks.rollout.decide.blue_green import Goal, Move, Observed, next_move, to_retire
from slipway.tasks.rollout.decide.canary import Phase
from slipway.tasks.serving.rendered import exposure, manifests
from slipway.tasks.serving.rendered.commands import PORTS
from slipway.tasks.serving.rendered.front import STATS_PORT

log = logging.getLogger(__name__)

MOST_MOVES = 20
ENDPOINTS_TIMEOUT_S = 60.0
POLL_S = 0.2
BAKE_LOOK_S = 5.0
DISRUPTION_BUDGET = "PodDisruptionBudget"
BY_CHANNEL = {Goal.REVERT, Goal.RESTORE, Goal.WARM, Goal.SERVE, Goal.STAND_BY, Goal.COOL}
"""Goals whose release was deployed by another run, perhaps before its model moved to another bucket, or its site asked
for API keys."""
REASONS: dict[tuple[Goal, Move], str] = {
    (Goal.ROLL_OUT, Move.DEPLOY): "CandidateDeployed",
    (Goal.PROMOTE, Move.SWAP_CHANNEL): "Promoted",
    (Goal.REVERT, Move.SWAP_CHANNEL): "LiveAgain",
    (Goal.RESTORE, Move.DEPLOY): "Restored",
}
"""Reasons of the Events about the release's own server."""
OF_LIVE = {Move.MAKE_ROOM: "MadeRoom", Move.GIVE_BACK: "ReplicasRestored"}
"""Reasons of the Events about the server of the release that the channel names."""


@dataclass(frozen=True)
class RolloutReconciler:
    """Moves one release of a model. Every method may be called again after it was cut short."""

    release: Release
    release_uri: str
    run: str
    workspace: Workspace
    cluster: Cluster

    @classmethod
    def of(cls, release: Release, workspace: Workspace, *, run: str | None = None) -> "RolloutReconciler":
        """Connect to the cluster for a release; `run` is the run that planned it unless another one acts on it."""
        uri = workspace.layout.release(release.spec.name, release.id)
        return cls(release, uri, run or release.plan.run, workspace, workspace.cluster())

    @property
    def model(self) -> str:
        """Name of the model, of its live Service, and of its channel."""
        return self.release.spec.name

    @property
    def channel(self) -> ChannelStore:
        """The model's channel."""
        return ChannelStore(self.workspace.store, self.workspace.layout, self.model, self.workspace.clock)

    @cached_property
    def target(self) -> ServerTarget:
        """The server that holds the release. Use it only while this run holds the lock: others could change it."""
        return server_target.server_target_of(
            self.release, self.release_uri, self.workspace.documents, self.workspace.site, self._templates
        )

    @property
    def _templates(self) -> Path:
        return self.workspace.manifests / "serving"

    @property
    def companions(self) -> Companions:
        """What follows the model's live Service."""
        return Companions(self.model, self.workspace.site, self._templates, self.cluster)

    @property
    def shared_gpus(self) -> SharedGpus:
        """The GPUs that the release shares with the live one where it does not surge."""
        return SharedGpus(self.model, self.cluster, self.workspace.clock)

    @property
    def budget(self) -> StartBudget:
        """Time that the pods of the release have to get nodes and images."""
        return self._budget_of(self.release)

    @property
    def lock(self) -> ReleaseLock:
        """The run's lock on the model."""
        workspace = self.workspace
        return ReleaseLock(
            self.release.spec,
            self.run,
            self.cluster,
            workspace.clock,
            start_s=self.budget.schedule_s + self.budget.pull_s,
            dag_run=workspace.dag_run,
            ended_holders=workspace.ended_holders,
        )

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Hold the model's lock within a block.

        A run of Airflow's that is cut off in the middle keeps it: by that its next try, the next run, or the hourly
        look for what was left behind finds the model and puts it in order.

        Raises:
            ConflictError: another run holds it.
        """
        left_by = self.lock.left_by()
        self.lock.acquire()
        if left_by is not None:
            self._tell_of_left(left_by)
        keeps = False
        try:
            yield
        except UnavailableError:
            keeps = bool(self.workspace.dag_run) and not self._is_in_order()
            raise
        finally:
            if not keeps:
                self.lock.release()

    def _tell_of_left(self, ended: LeaseHolder) -> None:
        words = f"run {ended.holder} has ended without putting the model in order; run {self.run} does"
        event = MoveEvent("RunLeftModel", words, self.run, warning=True)
        self.cluster.tell([("Service", f"{self.model}-candidate"), *self._places], event)

    def _is_in_order(self) -> bool:
        """Whether the cluster serves what the channel names and nothing besides; False when it cannot be told."""
        try:
            seen = self.observe(Goal.ROLL_BACK)
        except UnavailableError:
            return False
        return (
            seen.live_selects == seen.channel_live
            and seen.candidate_selects is None
            and seen.deployed <= seen.kept
            and seen.whole
        )

    def reach(self, goal: Goal, change: Callable[[Channel], Channel] = lambda channel: channel) -> list[str]:
        """Move until the goal is reached.

        Args:
            goal: the state to reach.
            change: what SWAP_CHANNEL does to the channel.

        Returns:
            A description of each move that was made.

        Raises:
            PipelineError: the goal is not reached after MOST_MOVES moves.
        """
        made: list[str] = []
        for _ in range(MOST_MOVES):
            seen = self.observe(goal)
            move = next_move(goal, seen)
            if move is None:
                return made
            log.info("%s: %s", goal, move)
            if move is Move.RETIRE:  # while they are there
                for name in sorted(to_retire(goal, seen)):
                    self.tell(name, "Retired", f"removed by {goal} of {self.release.id}")
            made.append(self._make(move, goal, seen, change))
            self._tell_of(move, goal, seen, made[-1])
        raise PipelineError(
            f"{goal} of {self.release.id} did not finish within {MOST_MOVES} moves",
            found=", ".join(made[-3:]),
            remedy="Check whether something else changes the model's workloads or Services.",
        )

    def _tell_of(self, move: Move, goal: Goal, seen: Observed, done: str) -> None:
        if reason := REASONS.get((goal, move)):
            self.tell(self.target.name, reason, done)
        if move is Move.SWAP_CHANNEL and seen.channel_live in seen.deployed:
            self.tell(str(seen.channel_live), "Replaced", f"{self.release.id} is live instead")
        if move in OF_LIVE:
            self.tell(str(seen.channel_live), OF_LIVE[move], done, warning=move is Move.MAKE_ROOM)

    def tell(self, server: str, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an Event about a server, for `kubectl describe`.

        One that is not deployed, such as a refused one, is told of at the model's live Service, or else at its Lease.
        """
        event = MoveEvent(reason, f"{message} (run {self.run})", self.run, warning=warning)
        workloads = [(kind, server) for kind in manifests.WORKLOADS]
        self.cluster.tell([*workloads, *self._places], event)

    def tell_model(self, reason: str, message: str) -> None:
        """Record a warning about the model, where it stays when the candidate is gone."""
        self.cluster.tell(self._places, MoveEvent(reason, f"{message} (run {self.run})", self.run, warning=True))

    @property
    def _places(self) -> list[tuple[str, str]]:
        return [("Service", self.model), ("Lease", lease_of(self.model))]

    def observe(self, goal: Goal) -> Observed:
        """Observe the model in cluster and channel. Only a rollout compares its manifest with today's."""
        workloads = self._workloads()
        channel = self.channel.read()
        surges = self._surges(goal, channel)
        kept = {entry.release_id for entry in (channel.live, *(channel.previous if surges else ())) if entry}
        mine = workloads.get(self.target.name)
        live_selects = self._selected(self.model)
        live_id = channel.live.release_id if channel.live else None
        sharing = self._shares(goal, workloads, channel)
        return Observed(
            release=self.release.id,
            server=self.target.name,
            deployed=frozenset(workloads),
            current=goal is Goal.ROLL_OUT
            and mine is not None
            and manifests.digest_of(mine) == manifests.digest_of(self.target.rendered()[0]),
            fits_here=goal not in BY_CHANNEL
            or mine is None
            or (manifests.release_uris(mine) == self.target.release_uris and self._asks_for_keys(mine)),
            available=mine is not None and is_available(mine),
            enough_replicas=mine is None
            or replicas.count(mine) >= replicas.carried(self.release, self.target.name, workloads, live_selects),
            surges=surges,
            room=sharing is None or self.shared_gpus.have_room(workloads[str(live_id)], sharing.live, self.target.name),
            whole=not replicas.is_shrunk(workloads.get(live_id or "")),
            live_selects=live_selects,
            candidate_selects=self._selected(f"{self.model}-candidate"),
            live_endpoints_settled=self._settled(),
            live_reaches_release=self._reached(),
            followed=self._is_followed(live_selects, channel, workloads),
            canary_passed=goal is not Goal.PROMOTE or self._canary_passed(live_selects, channel),
            routed=self._is_routed(),
            channel_live=live_id,
            kept=self.target.needed(lambda: self._live(channel)) | kept,
        )

    def _asks_for_keys(self, workload: manifests.Document) -> bool:
        """Whether a workload's front asks for the keys of the site, or for none where the site has none."""
        authentication = self.workspace.site.serving.authentication
        secret = None if authentication == "none" else authentication.keys_secret
        return manifests.keys_secret(workload) == secret

    def _make(self, move: Move, goal: Goal, seen: Observed, change: Callable[[Channel], Channel]) -> str:
        if move in {Move.POINT_CANDIDATE, Move.POINT_LIVE}:
            return self._point(self.release, self.release_uri, candidate=move is Move.POINT_CANDIDATE)
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

    def _workloads(self) -> dict[str, manifests.Document]:
        """Workloads that a rollout of the model manages, by name."""
        items = [
            item
            for labels in self.target.selectors
            for kind in manifests.WORKLOADS
            for item in self.cluster.find(kind, labels)
        ]
        return {item["metadata"]["name"]: item for item in items}

    def _live(self, channel: Channel) -> Release | None:
        return self._read(channel.live) if channel.live else None

    def _read(self, entry: ChannelEntry) -> Release:
        if entry.release_id == self.release.id:
            return self.release
        return self.workspace.documents.release(entry.release_uri)

    def _budget_of(self, release: Release) -> StartBudget:
        return self.workspace.site.budgets.of(gpus=release.spec.engine.gpu is not None)

    def _surges(self, goal: Goal, channel: Channel) -> bool:
        """Whether there are GPUs for two releases, by the newest spec: in a revert, that of the live release."""
        release = self.release
        if goal in BY_CHANNEL:
            try:
                release = self._live(channel) or release
            except InputError as error:  # a way back must stay possible
                log.warning("rollout.surge of the live release is unknown, taken as full: %s", error)
                return True
        return release.spec.rollout.surge == "full"

    def _shares(self, goal: Goal, workloads: dict[str, manifests.Document], channel: Channel) -> Shares | None:
        """How the release and the live one share GPUs; None where they do not."""
        live = channel.live
        if live is None or live.release_id == self.release.id or live.release_id not in workloads:
            return None
        before = replicas.full(workloads[live.release_id])
        if goal is Goal.ROLL_BACK or before == 0 or self._surges(goal, channel):
            return None
        return shares(self._read(live).spec, before, self.release.spec)

    def _make_room(self, goal: Goal) -> str:
        workloads, channel = self._workloads(), self.channel.read()
        live, sharing = self._live(channel), self._shares(goal, workloads, channel)
        assert live is not None  # observe saw that room is missing
        assert sharing is not None
        self.lock.acquire()
        return self.shared_gpus.make_room(
            workloads[live.id], sharing.live, self.target.name, lambda: self.companions.put(live, scaled=False)
        )

    def _give_back(self) -> str:
        live = self._live(self.channel.read())
        assert live is not None  # observe saw its annotation
        self.lock.acquire()
        return self.shared_gpus.give_back(
            self._workloads()[live.id], live.spec.serving.ready_timeout_s, self._budget_of(live)
        )

    def _deploy(self, goal: Goal) -> str:
        objects = self.target.rendered()
        if not any(item["kind"] == DISRUPTION_BUDGET for item in objects):
            self.cluster.delete(DISRUPTION_BUDGET, self.target.name)
        there = self._workloads().get(self.target.name)
        if there is not None and self.release.spec.serving.autoscale:
            # not left out: the server would reset a field that only we had set
            objects[0]["spec"]["replicas"] = max(replicas.count(objects[0]), replicas.count(there))
        workloads, channel = self._workloads(), self.channel.read()
        if sharing := self._shares(goal, workloads, channel):
            assert channel.live is not None  # _shares read it
            wanted = full_replicas(self.release.spec, replicas.full(workloads[channel.live.release_id]))
            objects[0]["metadata"]["annotations"][replicas.FULL_REPLICAS] = str(wanted)
            objects[0]["spec"]["replicas"] = sharing.candidate
        self.cluster.apply(objects)
        return f"deployed {self.target.name}"

    def _point(self, release: Release, release_uri: str, *, candidate: bool) -> str:
        objects = server_target.service(release, release_uri, self.workspace.site, self._templates, candidate=candidate)
        self.cluster.apply(objects)
        return f"Service {objects[0]['metadata']['name']} selects {release.id}"

    def _await_available(self) -> str:
        name = self.target.name
        workload = self._workloads().get(name)
        kind = workload["kind"] if workload else manifests.WORKLOADS[0]
        self.cluster.wait_available(kind, name, self.target.ready_timeout_s, self.budget)
        return f"{name} is available"

    def _await_endpoints(self) -> str:
        self._await(self._settled, f"Service {self.model} does not reach {self.release.id} alone")
        return f"every new connection reaches {self.release.id}"

    def _await_left(self) -> str:
        self._await(lambda: not self._reached(), f"Service {self.model} still reaches {self.release.id}")
        return f"no new connection reaches {self.release.id}"

    def _await_routed(self) -> str:
        self._await(
            self._is_routed,
            f"no Gateway took up the newest routes of {self.model}",
            remedy="Check the Gateway that the site file names, and the log of its controller.",
        )
        return f"no new request is routed to {self.model}-candidate"

    def _await(
        self,
        holds: Callable[[], bool],
        otherwise: str,
        remedy: str = "Check that the cluster's endpoint controller is running.",
    ) -> None:
        """Wait until what others do is done."""
        clock = self.workspace.clock
        began = clock.monotonic()
        while not holds():
            if clock.monotonic() - began > ENDPOINTS_TIMEOUT_S:
                raise UnavailableError(f"{otherwise} after {ENDPOINTS_TIMEOUT_S:.0f} s", remedy=remedy)
            clock.sleep(POLL_S)

    def _swap(self, goal: Goal, change: Callable[[Channel], Channel]) -> str:
        if goal is Goal.PROMOTE:
            self._bake()
        self.channel.swap(change)
        return f"the channel names {self.release.id}"

    def _bake(self) -> None:
        """Watch the release under live load. Until the channel names it, roll-back restores the one before it."""
        bake_s, clock = self.release.spec.rollout.bake_s, self.workspace.clock
        began = clock.monotonic()
        while (passed_s := clock.monotonic() - began) < bake_s:
            if not self._still_answers():
                raise InputError(
                    f"{self.release.id} became unavailable {passed_s:.0f} s after it took the traffic",
                    expected=f"it to stay available for rollout.bake_s ({bake_s} s)",
                    remedy="It is rolled back; see the logs of its pods.",
                )
            log.info("%s has served for %.0f of %d s", self.release.id, passed_s, bake_s)
            clock.sleep(min(BAKE_LOOK_S, bake_s - passed_s))
            self.lock.acquire()

    def _canary_passed(self, live_selects: str | None, channel: Channel) -> bool:
        if self.release.spec.rollout.strategy != "canary" or live_selects in {None, self.release.id}:
            return True
        live = self._known(live_selects, channel)
        if live is None:  # what another run left as live; its rollout would have restored the channel's
            return True
        state = self._canary_routes(live).state()
        return state is not None and state.phase is Phase.PASSED

    def _canary_routes(self, live: Release) -> CanaryRoutes:
        return CanaryRoutes(self.release, live, self.run, self.workspace.site, self._templates, self.cluster)

    def _shift_traffic(self) -> str:
        """Run the canary. Until it has passed, the live Service and the channel stay as they are."""
        live = self._known(self._selected(self.model), self.channel.read())
        assert live is not None  # _canary_passed saw it
        server_target.check_live_is_routed(self.release.spec, live)
        lines = CanaryRun(
            self._canary_routes(live),
            self.workspace.traffic(self.cluster, self.model, PORTS["metrics"], STATS_PORT),
            self.cluster,
            self.workspace.clock,
            candidate_pods=self.target.release_pods,
            live_pods=manifests.selector_of(self.model, live.id),
            keep_lock=self.lock.acquire,
            still_answers=self._still_answers,
            tell=lambda reason, words: self.tell(self.target.name, reason, words),
        ).finish()
        return " | ".join([f"{self.release.id} passed its canary", *lines])

    def _still_answers(self) -> bool:
        item = self._workloads().get(self.target.name)
        return item is not None and replicas.still_answer(self.release, item)

    def _is_routed(self) -> bool:
        routes = self.workspace.site.serving.routes
        if routes is None or routes.kind != "gateway":
            return True
        route_objects = [self.cluster.get(kind, self.model) for kind in (exposure.HTTP_ROUTE, exposure.GRPC_ROUTE)]
        return all(canary_routes.is_taken_up(route) for route in route_objects if route is not None)

    def _restore(self) -> str:
        live = self.channel.read().live
        if live is not None:
            release = self._read(live)
            self._regrow(release)
            return self._point(release, live.release_uri, candidate=False)
        self.cluster.delete("Service", self.model)
        return f"Service {self.model} is removed: nothing was live before"

    def _regrow(self, release: Release) -> None:
        """Give a release that takes the traffic back as many pods as serve now.

        They are not waited for: the release may be all that answers. One whose GPUs the candidate has waits for them.
        """
        workloads = self._workloads()
        if release.id in workloads and not replicas.is_shrunk(workloads[release.id]):
            self._scale(release, release.id, workloads)

    def _carry_replicas(self) -> str:
        wanted = self._scale(self.release, self.target.name, self._workloads())
        return f"{self.target.name} has {wanted} replicas, as many as serve now"

    def _scale(self, release: Release, name: str, workloads: dict[str, manifests.Document]) -> int:
        wanted = replicas.carried(release, name, workloads, self._selected(self.model))
        if wanted != replicas.count(workloads[name]):
            self.cluster.scale(workloads[name]["kind"], name, wanted)
        return wanted

    def _follow_live(self) -> str:
        live = self._selected(self.model)
        scaled = not replicas.is_shrunk(self._workloads().get(live or ""))
        return self.companions.put(self._known(live, self.channel.read()), scaled=scaled)

    def _is_followed(self, live: str | None, channel: Channel, workloads: dict[str, manifests.Document]) -> bool:
        if not self.companions.places:
            return True
        release = self._known(live, channel)
        # what another run left as live is unknown here, and about to be replaced
        scaled = not replicas.is_shrunk(workloads.get(live or ""))
        return (release is None and live is not None) or self.companions.are_in_place(release, scaled=scaled)

    def _known(self, release_id: str | None, channel: Channel) -> Release | None:
        """The release with this id, if it is this one or the channel's live one."""
        if release_id == self.release.id:
            return self.release
        return self._live(channel) if channel.live and channel.live.release_id == release_id else None

    def _drop_candidate(self) -> str:
        self.cluster.delete("Service", f"{self.model}-candidate")
        return f"Service {self.model}-candidate is removed"

    def _retire(self, names: list[str]) -> str:
        for name in names:
            for kind in (DISRUPTION_BUDGET, *manifests.WORKLOADS):
                self.cluster.delete(kind, name)
        return f"retired {', '.join(names)}"

    def _selected(self, service: str) -> str | None:
        item = self.cluster.get("Service", service)
        return server_target.selected(item["spec"].get("selector") or {}, self.model) if item else None

    def _settled(self) -> bool:
        reached, new = self.cluster.endpoints(self.model), set(self.cluster.ready_pods(self.target.server_pods))
        if not reached & new or not reached <= set(self.cluster.ready_pods(self.target.release_pods)):
            return False
        return all(self._reaches(name, new) for name in self.target.neighbours)

    def _reached(self) -> bool:
        """Whether the live Service sends connections to pods of the release."""
        return bool(self.cluster.endpoints(self.model) & set(self.cluster.ready_pods(self.target.release_pods)))

    def _reaches(self, service: str, pods: set[str]) -> bool:
        """Whether the Service sends connections to one of these pods; a missing Service has none to lose."""
        return bool(self.cluster.endpoints(service) & pods) or self.cluster.get("Service", service) is None
