"""The loop around blue_green.py: observe, decide the next move, make it, and observe again."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slipway.tasks.adapters.kube.event_object import MoveEvent
from slipway.tasks.adapters.kube.lease_object import LeaseHolder
from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.errors import PipelineError, UnavailableError
from slipway.tasks.contracts.site.site import StartBudget
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.lease import lease_of
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.rollout.act.model_state import ModelState
from slipway.tasks.rollout.act.moves import Moves
from slipway.tasks.rollout.act.release_lock import ReleaseLock
from slipway.tasks.rollout.decide.blue_green import Goal, Move, Observed, next_move, to_retire
from slipway.tasks.serving.rendered import manifests

log = logging.getLogger(__name__)

MOST_MOVES = 20
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
class RolloutReconciler(ModelState):
    """Moves one release of a model. Every method may be called again after it was cut short."""

    @classmethod
    def of(cls, release: Release, workspace: Workspace) -> "RolloutReconciler":
        """Connect to the cluster for the release of a step."""
        uri = workspace.layout.release(release.spec.name, release.id, workspace.release_uri)
        return cls(release, uri, release.plan.run, workspace, workspace.cluster())

    @classmethod
    def at(cls, release_uri: str, workspace: Workspace, *, run: str) -> "RolloutReconciler":
        """Connect to the cluster for a release that a channel or a workload names, and on which another run acts.

        Raises:
            InputError: it cannot be read.
        """
        release = workspace.documents.release(release_uri)
        uri = workspace.layout.release(release.spec.name, release.id, release_uri)
        return cls(release, uri, run, workspace, workspace.cluster())

    @property
    def budget(self) -> StartBudget:
        """Time that the pods of the release have to get nodes and images."""
        return self.budget_of(self.release)

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
        moves, made = Moves(self, self.lock, self.tell), list[str]()
        for _ in range(MOST_MOVES):
            seen = self.observe(goal)
            move = next_move(goal, seen)
            if move is None:
                return made
            log.info("%s: %s", goal, move)
            if move is Move.RETIRE:  # while they are there
                for name in sorted(to_retire(goal, seen)):
                    self.tell(name, "Retired", f"removed by {goal} of {self.release.id}")
            made.append(moves.make(move, goal, seen, change))
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
