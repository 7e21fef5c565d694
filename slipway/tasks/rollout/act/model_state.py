"""A model as it is now: its workloads, Services, routes and channel. Observes, and changes nothing."""

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.workload_state import is_available
from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.surge import Shares, shares
from slipway.tasks.contracts.site.site import StartBudget
from slipway.tasks.contracts.stored.channel import Channel, ChannelEntry
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.rollout.act import canary_routes, replicas, server_target
from slipway.tasks.rollout.act.canary_routes import CanaryRoutes
from slipway.tasks.rollout.act.channel_store import ChannelStore
from slipway.tasks.rollout.act.companions import Companions
from slipway.tasks.rollout.act.server_target import ServerTarget
from slipway.tasks.rollout.act.shared_gpus import SharedGpus
from slipway.tasks.rollout.decide.blue_green import Goal, Observed
from slipway.tasks.rollout.decide.canary import Phase
from slipway.tasks.serving.rendered import exposure, manifests

log = logging.getLogger(__name__)

BY_CHANNEL = {Goal.REVERT, Goal.RESTORE, Goal.WARM, Goal.SERVE, Goal.STAND_BY, Goal.COOL, Goal.KEEP}
"""Goals whose release was deployed by another run, perhaps before its model moved to another bucket, its site asked for
API keys, or a run with other settings was refused."""


@dataclass(frozen=True)
class ModelState:
    """The model of one release. Each call reads the cluster and the store again."""

    release: Release
    release_uri: str
    run: str
    workspace: Workspace
    cluster: Cluster

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
            self.release, self.release_uri, self.workspace.documents, self.workspace.site, self.templates
        )

    @property
    def templates(self) -> Path:
        """Templates of the manifests of servers."""
        return self.workspace.manifests / "serving"

    @property
    def companions(self) -> Companions:
        """What follows the model's live Service."""
        return Companions(self.model, self.workspace.site, self.templates, self.cluster)

    @property
    def shared_gpus(self) -> SharedGpus:
        """The GPUs that the release shares with the live one where it does not surge."""
        return SharedGpus(self.model, self.cluster, self.workspace.clock)

    def workloads(self) -> dict[str, manifests.Document]:
        """Workloads that a rollout of the model manages, by name."""
        items = [
            item
            for labels in self.target.selectors
            for kind in manifests.WORKLOADS
            for item in self.cluster.find(kind, labels)
        ]
        return {item["metadata"]["name"]: item for item in items}

    def live(self, channel: Channel) -> Release | None:
        """The release that the channel names."""
        return self.read(channel.live) if channel.live else None

    def read(self, entry: ChannelEntry) -> Release:
        """The release of an entry of the channel."""
        return self.release if self.is_own(entry) else self.workspace.documents.release(entry.release_uri)

    def is_own(self, entry: ChannelEntry) -> bool:
        """Whether an entry of the channel leads to this release, as its run planned it."""
        uri = self.workspace.layout.release(self.model, entry.release_id, entry.release_uri)
        return uri == self.release_uri

    def known(self, release_id: str | None, channel: Channel) -> Release | None:
        """The release with this id, if it is this one or the channel's live one."""
        if channel.live and channel.live.release_id == release_id:
            return self.live(channel)
        return self.release if release_id == self.release.id else None

    def budget_of(self, release: Release) -> StartBudget:
        """Time that the pods of a release have to get nodes and images."""
        return self.workspace.site.budgets.of(gpus=release.spec.engine.gpu is not None)

    def canary_routes(self, live: Release) -> CanaryRoutes:
        """The routes that share traffic between the release and the live one."""
        return CanaryRoutes(self.release, live, self.run, self.workspace.site, self.templates, self.cluster)

    def observe(self, goal: Goal) -> Observed:
        """Observe the model in cluster and channel. Only a rollout compares its manifest with today's."""
        workloads = self.workloads()
        channel = self.channel.read()
        surges = self._surges(goal, channel)
        kept = {entry.release_id for entry in (channel.live, *(channel.previous if surges else ())) if entry}
        mine = workloads.get(self.target.name)
        live_selects = self.selected(self.model)
        live_id = channel.live.release_id if channel.live else None
        sharing = self.shares(goal, workloads, channel)
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
            candidate_selects=self.selected(f"{self.model}-candidate"),
            live_endpoints_settled=self.settled(),
            live_reaches_release=self.reached(),
            followed=self._is_followed(live_selects, channel, workloads),
            canary_passed=goal is not Goal.PROMOTE or self._canary_passed(live_selects, channel),
            routed=self.is_routed(),
            channel_live=live_id,
            kept=self.target.needed(lambda: self.live(channel)) | (kept - self._stray(goal, channel)),
        )

    def _surges(self, goal: Goal, channel: Channel) -> bool:
        """Whether there are GPUs for two releases, by the newest spec: in a revert, that of the live release.

        A refused candidate stays warm only where its spec and that of the live release say so.
        """
        release = self.release
        if goal in BY_CHANNEL or (goal is Goal.ROLL_BACK and release.spec.rollout.surge == "full"):
            try:
                release = self.live(channel) or release
            except InputError as error:  # a way back must stay possible
                log.warning("rollout.surge of the live release is unknown, taken as full: %s", error)
                return True
        return release.spec.rollout.surge == "full"

    def _stray(self, goal: Goal, channel: Channel) -> set[str]:
        """The server that a refused run gave a previous release, where that was promoted in another group or none."""
        entry = next((entry for entry in channel.previous if entry.release_id == self.release.id), None)
        if goal is not Goal.ROLL_BACK or entry is None:
            return set()
        try:
            group = self.read(entry).spec.serving.group
        except InputError as error:  # a refusal is undone as far as possible
            log.warning("the server of %s is kept: %s", entry.release_id, error)
            return set()
        return set() if group == self.release.spec.serving.group else {self.target.name}

    def shares(self, goal: Goal, workloads: dict[str, manifests.Document], channel: Channel) -> Shares | None:
        """How the release and the live one share GPUs; None where they do not."""
        live = channel.live
        if live is None or live.release_id == self.release.id or live.release_id not in workloads:
            return None
        before = replicas.full(workloads[live.release_id])
        if goal is Goal.ROLL_BACK or before == 0 or self._surges(goal, channel):
            return None
        return shares(self.read(live).spec, before, self.release.spec)

    def selected(self, service: str) -> str | None:
        """The release that a Service selects; None where there is none."""
        item = self.cluster.get("Service", service)
        return server_target.selected(item["spec"].get("selector") or {}, self.model) if item else None

    def settled(self) -> bool:
        """Whether every new connection to the live Service reaches pods of the release, and so do its neighbours'."""
        reached, new = self.cluster.endpoints(self.model), set(self.cluster.ready_pods(self.target.server_pods))
        if not reached & new or not reached <= set(self.cluster.ready_pods(self.target.release_pods)):
            return False
        return all(self._reaches(name, new) for name in self.target.neighbours)

    def reached(self) -> bool:
        """Whether the live Service sends connections to pods of the release."""
        return bool(self.cluster.endpoints(self.model) & set(self.cluster.ready_pods(self.target.release_pods)))

    def _reaches(self, service: str, pods: set[str]) -> bool:
        """Whether the Service sends connections to one of these pods; a missing Service has none to lose."""
        return bool(self.cluster.endpoints(service) & pods) or self.cluster.get("Service", service) is None

    def _asks_for_keys(self, workload: manifests.Document) -> bool:
        """Whether a workload's front asks for the keys of the site, or for none where the site has none."""
        authentication = self.workspace.site.serving.authentication
        secret = None if authentication == "none" else authentication.keys_secret
        return manifests.keys_secret(workload) == secret

    def _canary_passed(self, live_selects: str | None, channel: Channel) -> bool:
        if self.release.spec.rollout.strategy != "canary" or live_selects in {None, self.release.id}:
            return True
        live = self.known(live_selects, channel)
        if live is None:  # what another run left as live; its rollout would have restored the channel's
            return True
        state = self.canary_routes(live).state()
        return state is not None and state.phase is Phase.PASSED

    def is_routed(self) -> bool:
        """Whether the Gateway has taken up the newest routes of the model."""
        routes = self.workspace.site.serving.routes
        if routes is None or routes.kind != "gateway":
            return True
        route_objects = [self.cluster.get(kind, self.model) for kind in (exposure.HTTP_ROUTE, exposure.GRPC_ROUTE)]
        return all(canary_routes.is_taken_up(route) for route in route_objects if route is not None)

    def _is_followed(self, live: str | None, channel: Channel, workloads: dict[str, manifests.Document]) -> bool:
        if not self.companions.places:
            return True
        try:
            release = self.known(live, channel)
        except InputError as error:  # a way back, and to the next release, must stay possible
            log.warning("scaler and routes of the live release are left as they are: %s", error)
            return True
        # what another run left as live is unknown here, and about to be replaced
        scaled = not replicas.is_shrunk(workloads.get(live or ""))
        return (release is None and live is not None) or self.companions.are_in_place(release, scaled=scaled)

    def still_answers(self) -> bool:
        """Whether enough pods of the release are available."""
        item = self.workloads().get(self.target.name)
        return item is not None and replicas.still_answer(self.release, item)
