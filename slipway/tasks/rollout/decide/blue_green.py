"""A rollout as a pure function: (goal, observed state) -> the next move, or none when the goal is reached.

Blue-green is all of it. A canary is one more move before the live Service flips, decided by canary.py.

Nothing is remembered between moves: the state is in the cluster and the channel. A step that was killed at any point
observes again and continues.

The order matters. A release has as many pods as the live one before it takes the traffic, and what belongs beside the
live Service, such as a scaler, follows before anything waits. Traffic flips before the channel is swapped, so that the
channel never names a release that does not serve; a release leaves its Services before its pods end, so that no
connection goes to a pod that is ending.

Without a surge the candidate has the GPUs of the live release: that one makes room before the candidate is deployed,
and whichever of the two is live in the end gets its replicas back after the other one is removed.
"""

from dataclasses import dataclass
from enum import StrEnum


class Goal(StrEnum):
    """The state that a step moves the rollout to."""

    ROLL_OUT = "roll-out"
    PROMOTE = "promote"
    ROLL_BACK = "roll-back"
    REVERT = "revert"
    RESTORE = "restore"
    WARM = "warm"
    SERVE = "serve"
    STAND_BY = "stand-by"
    COOL = "cool"
    KEEP = "keep"


class Move(StrEnum):
    """One change. Making it again does no harm."""

    MAKE_ROOM = "make-room"
    DEPLOY = "deploy"
    POINT_CANDIDATE = "point-candidate"
    AWAIT_AVAILABLE = "await-available"
    CARRY_REPLICAS = "carry-replicas"
    SHIFT_TRAFFIC = "shift-traffic"
    POINT_LIVE = "point-live"
    FOLLOW_LIVE = "follow-live"
    AWAIT_ENDPOINTS = "await-endpoints"
    SWAP_CHANNEL = "swap-channel"
    RESTORE_LIVE = "restore-live"
    AWAIT_ROUTED = "await-routed"
    DROP_CANDIDATE = "drop-candidate"
    AWAIT_LEFT = "await-left"
    RETIRE = "retire"
    GIVE_BACK = "give-back"


@dataclass(frozen=True)
class Observed:
    """The observed state of a model, from the view of one release."""

    release: str
    server: str
    """Name of the workload that serves the release: the release's id, unless it shares a server with other models."""
    deployed: frozenset[str] = frozenset()
    """Workloads that exist, of the model's releases and of its group."""
    current: bool = False
    """Whether the release's workload matches today's spec and site."""
    fits_here: bool = True
    """Whether the workload's new pods fetch its releases from where they are stored now, and ask for the site's API
    keys; False after a move, and of a release from before the site asked for keys."""
    available: bool = False
    """Whether every replica of the workload is available, in its newest generation."""
    enough_replicas: bool = True
    """Whether the workload asks for as many replicas as it needs to take over from the one that serves now."""
    surges: bool = True
    """Whether the release starts beside a live one that keeps its replicas (rollout.surge full)."""
    room: bool = True
    """Whether GPUs of the live release are free for this one; True where it surges, or nothing is live."""
    whole: bool = True
    """Whether the release that the channel names as live has given up none of its replicas."""
    live_selects: str | None = None
    """Release that the live Service selects; None when there is no such Service."""
    candidate_selects: str | None = None
    live_endpoints_settled: bool = False
    """Whether the live Service reaches only pods of the release, and the Services of other models reach its server."""
    live_reaches_release: bool = False
    """Whether the live Service reaches pods of the release, alone or among others."""
    followed: bool = True
    """Whether what belongs beside the live Service is there for the release that it selects, and nothing else is."""
    canary_passed: bool = True
    """Whether the release passed its canary in this run; True where none is asked for, or no release is live."""
    routed: bool = True
    """Whether the Gateways have taken up the newest routes; True where none reports what it serves."""
    channel_live: str | None = None
    kept: frozenset[str] = frozenset()
    """Workloads of the releases that the channel lists as live or previous."""


def next_move(goal: Goal, seen: Observed) -> Move | None:  # noqa: C901, PLR0911 - one for each goal
    """The next move towards the goal; None when it is reached."""
    match goal:
        case Goal.ROLL_OUT:
            return _roll_out(seen)
        case Goal.PROMOTE:
            return _promote(seen)
        case Goal.ROLL_BACK:
            return _roll_back(seen)
        case Goal.REVERT:
            return _revert(seen)
        case Goal.RESTORE:
            return _restore(seen)
        case Goal.WARM:
            return _warm(seen)
        case Goal.SERVE:
            return _serve(seen)
        case Goal.STAND_BY:
            return _stand_by(seen)
        case Goal.COOL:
            return _cool(seen)
        case Goal.KEEP:
            return _keep(seen)


def to_retire(goal: Goal, seen: Observed) -> frozenset[str]:
    """Workloads to remove: the refused one, or those that the channel no longer keeps.

    A drill removes what it started. A rollback removes the latter too while the live release lacks replicas: they may
    have its GPUs.
    """
    if goal is Goal.COOL:
        return frozenset({seen.server}) & seen.deployed
    if goal is Goal.ROLL_BACK and seen.whole:
        return frozenset({seen.server}) & (seen.deployed - seen.kept)
    own = frozenset[str]() if goal is Goal.ROLL_BACK else frozenset({seen.server})
    return seen.deployed - seen.kept - own


def _roll_out(seen: Observed) -> Move | None:
    if (move := _clear_away(seen)) is not None:
        return move
    if seen.surges and not seen.whole:
        return Move.GIVE_BACK
    if not seen.room and not (_runs(seen) and seen.current):
        return Move.MAKE_ROOM
    if seen.server not in seen.deployed or not seen.current:
        return Move.DEPLOY
    if seen.candidate_selects != seen.release:
        return Move.POINT_CANDIDATE
    return None if seen.available else Move.AWAIT_AVAILABLE


def _runs(seen: Observed) -> bool:
    """Whether every pod that the release needs runs already, so that it needs no more room."""
    return seen.server in seen.deployed and seen.fits_here and seen.available and seen.enough_replicas


def _clear_away(seen: Observed) -> Move | None:
    """Remove what a run that ended midway left behind: only the run that holds the model's lease changes the model.

    This comes before anything is deployed, because a leftover may hold the GPUs that the candidate needs. A release
    that serves live traffic although the channel names none is left alone until another one is promoted.
    """
    if seen.live_selects is not None and seen.live_selects != seen.channel_live:
        restorable = seen.channel_live is not None and seen.kept & seen.deployed
        return Move.RESTORE_LIVE if restorable else None
    if not seen.followed:
        return Move.FOLLOW_LIVE
    if seen.candidate_selects not in {None, seen.release}:
        return _drop_candidate(seen)
    return Move.RETIRE if to_retire(Goal.ROLL_OUT, seen) else None


def _drop_candidate(seen: Observed) -> Move:
    """Remove the candidate's Service, once no Gateway sends requests to it any more."""
    return Move.DROP_CANDIDATE if seen.routed else Move.AWAIT_ROUTED


def _make_live(seen: Observed) -> Move | None:
    if (move := _serve(seen)) is not None:
        return move
    return None if seen.channel_live == seen.release else Move.SWAP_CHANNEL


def _serve(seen: Observed) -> Move | None:
    """Send all traffic to the release, whatever the channel names."""
    if (move := _start(seen)) is not None:
        return move
    if seen.live_selects != seen.release:
        return _take_traffic(seen)
    if not seen.followed:
        return Move.FOLLOW_LIVE
    return None if seen.live_endpoints_settled else Move.AWAIT_ENDPOINTS


def _start(seen: Observed) -> Move | None:
    if seen.live_selects != seen.release and not seen.room and not _runs(seen):
        return Move.MAKE_ROOM
    return Move.DEPLOY if seen.server not in seen.deployed or not seen.fits_here else None


def _take_traffic(seen: Observed) -> Move:
    if not seen.enough_replicas:
        return Move.CARRY_REPLICAS
    if not seen.available:
        return Move.AWAIT_AVAILABLE
    return Move.POINT_LIVE if seen.canary_passed else Move.SHIFT_TRAFFIC


def _promote(seen: Observed) -> Move | None:
    if (move := _make_live(seen)) is not None:
        return move
    if seen.candidate_selects is not None:
        return _drop_candidate(seen)
    return _clean_up(Goal.PROMOTE, seen)


def _clean_up(goal: Goal, seen: Observed) -> Move | None:
    """Remove what is no longer kept, and then give its GPUs to the live release."""
    if to_retire(goal, seen):
        return Move.RETIRE
    return None if seen.whole else Move.GIVE_BACK


def _roll_back(seen: Observed) -> Move | None:
    """Undo a promotion that was killed between traffic and channel too: the channel decides what is live."""
    if seen.live_selects == seen.release and seen.channel_live != seen.release:
        return Move.RESTORE_LIVE
    if not seen.followed:
        return Move.FOLLOW_LIVE
    if seen.candidate_selects is not None:
        return _drop_candidate(seen)
    if not to_retire(Goal.ROLL_BACK, seen):
        return _clean_up(Goal.ROLL_BACK, seen)
    # by now the live Service selects another release, and its endpoints follow a moment later
    left = seen.live_selects == seen.release or not seen.live_reaches_release
    return Move.RETIRE if left else Move.AWAIT_LEFT


def _revert(seen: Observed) -> Move | None:
    """Make a previous release live; deploy it again if it is no longer warm, and remove what it replaces.

    A candidate that a run left behind when it ended midway is removed as well.
    """
    if (move := _make_live(seen)) is not None:
        return move
    if seen.candidate_selects is not None:
        return _drop_candidate(seen)
    return _clean_up(Goal.REVERT, seen)


def _warm(seen: Observed) -> Move | None:
    """Start as many pods of a previous release as serve now, while the live release keeps the traffic."""
    if (move := _start(seen)) is not None:
        return move
    if not seen.followed:
        return Move.FOLLOW_LIVE
    if not seen.enough_replicas:
        return Move.CARRY_REPLICAS
    return None if seen.available else Move.AWAIT_AVAILABLE


def _stand_by(seen: Observed) -> Move | None:
    """Give the traffic back to the release that the channel names, and remove nothing."""
    if seen.live_selects == seen.release and seen.channel_live != seen.release:
        return Move.RESTORE_LIVE
    return None if seen.followed else Move.FOLLOW_LIVE


def _cool(seen: Observed) -> Move | None:
    """Remove a release that the channel does not name as live, once no new connection reaches it."""
    if (move := _stand_by(seen)) is not None:
        return move
    if seen.server not in seen.deployed or seen.channel_live == seen.release:
        return None
    return Move.AWAIT_LEFT if seen.live_reaches_release else Move.RETIRE


def _keep(seen: Observed) -> Move | None:
    """Leave a server that stays deployed as its release was promoted, not as a refused run of that release made it.

    Where GPUs of the live release would be needed, that waits until the release takes the traffic.
    """
    if seen.server in seen.deployed and not seen.fits_here and seen.room:
        return Move.DEPLOY
    return None if seen.followed else Move.FOLLOW_LIVE


def _restore(seen: Observed) -> Move | None:
    """Serve the live release from where its channel has it, although nothing, or pods of a lost bucket, serve it now.

    It has to be available before anything else changes: old pods that still answer could not start again.
    """
    if seen.server in seen.deployed and seen.fits_here and not seen.available:
        return Move.AWAIT_AVAILABLE
    return _revert(seen)
