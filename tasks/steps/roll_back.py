"""roll-back: take a refused candidate away and leave the live release as it is."""

from tasks.adapters.object_store import NotFoundError
from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.release import Release
from tasks.rollout.conductor import Conductor
from tasks.rollout.machine import Goal

REASON_CHARS = 500


def run(release: Release, workspace: Workspace) -> Outcome:
    """Remove the candidate's Service and Deployment, note the refusal in the channel, and let go of the model.

    A release that the channel names as live, or keeps as a previous one, is not removed.

    Raises:
        ConflictError: another run holds the model; what it does is not undone.
    """
    conductor = Conductor.of(release, workspace)
    conductor.take_lease()
    live = conductor.channel.read().live
    moves = conductor.reach(Goal.ROLL_BACK)
    reason = _reason(release, workspace)
    if live is None or live.release_id != release.id:
        conductor.channel.swap(
            lambda channel: channel.refused(release.id, at=workspace.clock.now(), run=release.plan.run, reason=reason)
        )
    conductor.drop_lease()
    stays = f"{live.release_id} stays live" if live else "nothing is live, as before"
    done = "; ".join(moves) or "nothing of it was deployed"
    return Outcome(f"{stays}; {done}", {"moves": moves, "reason": reason, "live": live.release_id if live else None})


def _reason(release: Release, workspace: Workspace) -> str:
    """What the gate said of this run, or that it never spoke."""
    try:
        gate = workspace.read_result(release, "gate")
    except NotFoundError:
        return "a step before the gate failed"
    return gate.summary[:REASON_CHARS] if gate.run == release.plan.run else "a step before the gate failed"
