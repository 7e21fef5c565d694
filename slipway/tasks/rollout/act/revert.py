"""Puts the previous release of a model back: in seconds while it is warm, otherwise after it has booted."""

from collections.abc import Callable

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import ConflictError, InputError, PipelineError
from slipway.tasks.contracts.stored.channel import Channel, ChannelEntry
from slipway.tasks.rollout.act.reconciler import RolloutReconciler
from slipway.tasks.rollout.decide.blue_green import Goal
from slipway.tasks.serving.rendered import manifests


def restore(name: str, workspace: Workspace, *, run: str) -> Outcome:
    """Make the cluster serve what the channel of model `name` names as live, after the cluster or the bucket was lost.

    Pods that would fetch the release from another bucket or prefix are replaced one by one, without an interruption.
    Repeating it does no harm; when the release serves already, nothing changes. What a run left behind that ended
    before it could roll back is removed, also where nothing is live yet.

    Raises:
        InputError: the channel names no live release and nothing is left behind, or that release can no longer start.
        ConflictError: a release of the model is in progress, or ended as this began.
        UnavailableError: the release did not become available in time.
    """
    live = workspace.documents.channel(name).live
    if live is None:
        if left := _left_behind(name, workspace, run):
            return _removed(name, left)
        raise InputError(
            f"the channel of {name} names no live release, so there is nothing to restore",
            remedy=f"Release it with `slipway release {name}`, or bring its channel back with `slipway import`.",
        )
    reconciler = RolloutReconciler.at(live.release_uri, workspace, run=run)
    with reconciler.holding():
        _check_same(live, workspace.documents.channel(name).live, name)
        moves = reconciler.reach(Goal.RESTORE)
    done = "; ".join(moves) or "it served already"
    return Outcome(
        f"{live.release_id} is live, as its channel says: {done}",
        {"release": live.release_id, "was": None, "reason": "", "service": name, "moves": moves},
    )


def _left_behind(name: str, workspace: Workspace, run: str) -> list[RolloutReconciler]:
    """Candidates of a model of which nothing is live."""
    cluster = workspace.cluster()
    items = [item for kind in manifests.WORKLOADS for item in cluster.find(kind, {manifests.MODEL_LABEL: name})]
    uris = {uri for item in items for uri in manifests.release_uris(item).values()}
    return [RolloutReconciler.at(uri, workspace, run=run) for uri in sorted(uris)]


def _removed(name: str, left: list[RolloutReconciler]) -> Outcome:
    moves: list[str] = []
    for reconciler in left:
        with reconciler.holding():
            moves += reconciler.reach(Goal.ROLL_BACK)
    done = "; ".join(moves) or "nothing had to be removed"
    return Outcome(
        f"nothing of {name} is live, as its channel says: {done}",
        {"release": None, "was": None, "reason": "", "service": name, "moves": moves},
    )


def revert(name: str, workspace: Workspace, *, run: str, reason: str, to: str | None = None) -> Outcome:
    """Send all traffic of model `name` to a previous release, and record that in the channel.

    `to` names the release; None: the newest one before the live one.

    Repeating it with the same `run` finishes what that run began and goes back no further. Releases that the channel no
    longer keeps are removed, including the one that was live. Where the live release had to make room for the target
    (rollout.surge none), a failure gives it its replicas back.

    Raises:
        InputError: the model has no such previous release, or that one can no longer start.
        ConflictError: a release of the model is in progress, or ended as this began.
        UnavailableError: the previous release did not become available in time.
    """
    channel = workspace.documents.channel(name)
    target = _target(channel, run, to)
    reconciler = RolloutReconciler.at(target.release_uri, workspace, run=run)

    def taken_back(current: Channel) -> Channel:
        if current.live and current.live.release_id == target.release_id:
            return current
        return current.rolled_back(at=workspace.clock.now(), run=run, reason=reason, to=target.release_id)

    with reconciler.holding():
        _check_same(target, _target(workspace.documents.channel(name), run, to), name)
        moves = _reach(reconciler, taken_back)
    was = channel.history[0].release_id if _is_done(channel, run) else channel.live.release_id if channel.live else None
    return Outcome(
        f"{target.release_id} is live again, in place of {was}",
        {"release": target.release_id, "was": was, "reason": reason, "service": name, "moves": moves},
    )


def _reach(reconciler: RolloutReconciler, taken_back: Callable[[Channel], Channel]) -> list[str]:
    try:
        return reconciler.reach(Goal.REVERT, taken_back)
    except PipelineError:
        if not reconciler.observe(Goal.ROLL_BACK).whole:  # what was live made room for the target
            reconciler.reach(Goal.ROLL_BACK)
        raise


def _check_same(before: ChannelEntry, now: ChannelEntry | None, name: str) -> None:
    """Check that the channel still leads to the release that it led to before the lock was acquired.

    Raises:
        ConflictError: another run ended meanwhile.
    """
    if now is None or now.release_id != before.release_id:
        raise ConflictError(
            f"a release or rollback of {name} ended just as this one began, so nothing was changed",
            found=f"{now.release_id if now else 'no release'}, where the channel led to {before.release_id} before",
            remedy=f"See `slipway status {name}`, and start it again if it is still wanted.",
        )


def _is_done(channel: Channel, run: str) -> bool:
    """Whether this run has swapped the channel already and was interrupted afterwards."""
    last = channel.history[0] if channel.history else None
    return last is not None and last.event == "rolled-back" and last.run == run


def _target(channel: Channel, run: str, to: str | None) -> ChannelEntry:
    if channel.live and _is_done(channel, run):
        return channel.live
    if channel.live is None or not channel.previous:
        raise InputError(
            f"{channel.name} has no previous release to go back to",
            found=f"only {channel.live.release_id}, which is live" if channel.live else "no live release",
            remedy="Release another revision; rollout.keep says how many releases are kept.",
        )
    entry_of_release = next((entry for entry in channel.previous if to in {None, entry.release_id}), None)
    if entry_of_release is None:
        kept = ", ".join(entry.release_id for entry in channel.previous)
        live = " It is live." if channel.live.release_id == to else ""
        raise InputError(
            f"{to} is not a previous release of {channel.name}",
            found=f"previous releases {kept}",
            expected="one of these",
            remedy=f"Choose one of them; rollout.keep says how many are kept.{live}",
        )
    return entry_of_release
