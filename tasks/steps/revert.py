"""revert: put the previous release of a model back, long after another was promoted."""

from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.base import read_contract_json
from tasks.contracts.channel import Channel, ChannelEntry
from tasks.contracts.errors import InputError
from tasks.contracts.release import Release, RevertRequest
from tasks.rollout.channel_store import ChannelStore
from tasks.rollout.conductor import Conductor
from tasks.rollout.machine import Goal


def run(request: RevertRequest, workspace: Workspace) -> Outcome:
    """Send all traffic to the newest previous release, which is deployed again when it is no longer warm.

    Running it again in the same run goes back no further.

    Raises:
        InputError: the model was never released, or has no previous release.
        ConflictError: a release of the model is in progress.
        UnavailableError: the previous release did not become available in time.
    """
    channel = ChannelStore(workspace.store, workspace.layout, request.name).read()
    target = _target(channel, request)
    document = workspace.store.read_bytes(target.release_uri)
    release = read_contract_json(Release, document, target.release_uri)
    conductor = Conductor.of(release, workspace, run=request.run)
    conductor.take_lease()
    moves = conductor.reach(
        Goal.REVERT,
        lambda found: found.rolled_back(at=workspace.clock.now(), run=request.run, reason=request.reason),
    )
    conductor.drop_lease()
    return Outcome(f"{release.id} is live again", {"moves": moves, "release_id": release.id, "reason": request.reason})


def _target(channel: Channel, request: RevertRequest) -> ChannelEntry:
    done = channel.history and channel.history[0].event == "rolled-back" and channel.history[0].run == request.run
    target = channel.live if done else next(iter(channel.previous), None)
    if target is None:
        raise InputError(
            f"{request.name} has no previous release to go back to (live: "
            f"{channel.live.release_id if channel.live else 'nothing'}). Release the revision that you want."
        )
    return target
