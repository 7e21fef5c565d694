"""Blue-green as a pure function: (goal, what is observed) -> the next move, or none when the goal is reached.

Nothing is remembered between moves: the state is the cluster's and the channel's. A step that was killed anywhere
observes again and goes on.

Order matters. Traffic flips before the channel is swapped, so that the channel never names a release that does not
serve; a candidate's Service goes before its pods, so that no connection is sent to a pod that is ending.
"""

from dataclasses import dataclass
from enum import StrEnum


class Goal(StrEnum):
    """What a step wants of the roll-out."""

    ROLL_OUT = "roll-out"
    PROMOTE = "promote"
    ROLL_BACK = "roll-back"
    REVERT = "revert"


class Move(StrEnum):
    """One change, each of which may be made again without harm."""

    DEPLOY = "deploy"
    POINT_CANDIDATE = "point-candidate"
    AWAIT_AVAILABLE = "await-available"
    POINT_LIVE = "point-live"
    AWAIT_ENDPOINTS = "await-endpoints"
    SWAP_CHANNEL = "swap-channel"
    RESTORE_LIVE = "restore-live"
    DROP_CANDIDATE = "drop-candidate"
    RETIRE = "retire"


@dataclass(frozen=True)
class Observed:
    """The model as it stands, seen from one release."""

    release: str
    server: str
    """Name of the workload that serves the release: its own id, unless it shares a server with other models."""
    deployed: frozenset[str] = frozenset()
    """Workloads that stand: of the model's releases, and of its group."""
    current: bool = False
    """The release's workload is the one that its spec and the site ask for today."""
    available: bool = False
    """Every replica of the workload is available, in its newest generation."""
    live_selects: str | None = None
    """Release that the live Service selects; None: there is no such Service."""
    candidate_selects: str | None = None
    live_endpoints_settled: bool = False
    """The live Service sends connections to pods of the release and to no others; other models' reach the server."""
    channel_live: str | None = None
    kept: frozenset[str] = frozenset()
    """Workloads of what the channel remembers as live or previous."""


def next_move(goal: Goal, seen: Observed) -> Move | None:
    """The next move towards the goal."""
    match goal:
        case Goal.ROLL_OUT:
            return _roll_out(seen)
        case Goal.PROMOTE:
            return _promote(seen)
        case Goal.ROLL_BACK:
            return _roll_back(seen)
        case Goal.REVERT:
            return _revert(seen)


def to_retire(goal: Goal, seen: Observed) -> frozenset[str]:
    """Workloads that have to go: the refused one, or those that the channel no longer keeps."""
    if goal is Goal.ROLL_BACK:
        return frozenset({seen.server}) & (seen.deployed - seen.kept)
    return seen.deployed - seen.kept - {seen.server}


def _roll_out(seen: Observed) -> Move | None:
    if seen.server not in seen.deployed or not seen.current:
        return Move.DEPLOY
    if seen.candidate_selects != seen.release:
        return Move.POINT_CANDIDATE
    return None if seen.available else Move.AWAIT_AVAILABLE


def _make_live(seen: Observed) -> Move | None:
    if seen.server not in seen.deployed:
        return Move.DEPLOY
    if seen.live_selects != seen.release:
        return Move.POINT_LIVE if seen.available else Move.AWAIT_AVAILABLE
    if not seen.live_endpoints_settled:
        return Move.AWAIT_ENDPOINTS
    return None if seen.channel_live == seen.release else Move.SWAP_CHANNEL


def _promote(seen: Observed) -> Move | None:
    if (move := _make_live(seen)) is not None:
        return move
    if seen.candidate_selects is not None:
        return Move.DROP_CANDIDATE
    return Move.RETIRE if to_retire(Goal.PROMOTE, seen) else None


def _roll_back(seen: Observed) -> Move | None:
    """A promotion that died between traffic and channel is undone: the channel says what is live."""
    if seen.live_selects == seen.release and seen.channel_live != seen.release:
        return Move.RESTORE_LIVE
    if seen.candidate_selects is not None:
        return Move.DROP_CANDIDATE
    return Move.RETIRE if to_retire(Goal.ROLL_BACK, seen) else None


def _revert(seen: Observed) -> Move | None:
    """The release was live before and is deployed again when it is no longer warm. What it replaces is taken away."""
    if (move := _make_live(seen)) is not None:
        return move
    return Move.RETIRE if to_retire(Goal.REVERT, seen) else None
