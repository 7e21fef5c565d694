"""Takes a live release back to the one before it: seconds while that one is still warm, else as long as it boots."""

from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.base import read_contract_json
from tasks.contracts.channel import Channel, ChannelEntry
from tasks.contracts.errors import InputError
from tasks.contracts.release import Release
from tasks.rollout.channel_store import ChannelStore
from tasks.rollout.conductor import Conductor
from tasks.rollout.machine import Goal


def revert(name: str, workspace: Workspace, *, run: str, reason: str) -> Outcome:
    """Give all traffic of model `name` to the newest previous release, and say so in the channel.

    Repeated with the same `run` it finishes what it began and goes no further back. What the channel no longer keeps
    is removed, the release that was taken back among it.

    Raises:
        InputError: the model has no previous release, or that one can no longer start.
        ConflictError: a release of the model is in progress.
        UnavailableError: the previous release did not become available in time.
    """
    channel = ChannelStore(workspace.store, workspace.layout, name).read()
    target = _target(channel, run)
    document = workspace.store.read_bytes(target.release_uri)
    release = read_contract_json(Release, document, target.release_uri)
    conductor = Conductor.of(release, workspace, run=run)
    conductor.hold.take()

    def taken_back(found: Channel) -> Channel:
        if found.live and found.live.release_id == target.release_id:
            return found
        return found.rolled_back(at=workspace.clock.now(), run=run, reason=reason)

    try:
        moves = conductor.reach(Goal.REVERT, taken_back)
    finally:
        conductor.hold.drop()
    was = channel.history[0].release_id if _is_done(channel, run) else channel.live.release_id if channel.live else None
    return Outcome(
        f"{target.release_id} is live again, in place of {was}",
        {"release": target.release_id, "was": was, "reason": reason, "service": name, "moves": moves},
    )


def _is_done(channel: Channel, run: str) -> bool:
    """Whether this run swapped the channel already, and was cut short afterwards."""
    last = channel.history[0] if channel.history else None
    return last is not None and last.event == "rolled-back" and last.run == run


def _target(channel: Channel, run: str) -> ChannelEntry:
    if channel.live and _is_done(channel, run):
        return channel.live
    if channel.live is None or not channel.previous:
        live = f"{channel.live.release_id} is live and nothing was before it" if channel.live else "nothing is live"
        raise InputError(
            f"{channel.name} has no previous release to go back to: {live}. rollout.keep says how many releases are "
            "remembered."
        )
    return channel.previous[0]
