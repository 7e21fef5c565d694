"""promote: send all traffic to the release that passed its gate, swap the channel, and retire old releases."""

from typing import Any

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.rollout.act.reconciler import RolloutReconciler
from slipway.tasks.rollout.decide.blue_green import Goal


def run(release: Release, workspace: Workspace) -> Outcome:
    """Flip the live Service, swap the channel, retire releases beyond `rollout.keep`, and release the lock.

    Raises:
        InputError: this run's gate did not pass, or the release failed while `rollout.bake_s` passed.
        ConflictError: another run has acquired the model's lease.
    """
    gate = workspace.documents.result(release, "gate")
    if gate.run != release.plan.run or gate.data.get("verdict") != Verdict.PASSED:
        raise InputError(
            f"release {release.id} has not passed its gate in run {release.plan.run}",
            found=f"verdict {gate.data.get('verdict')} in run {gate.run}",
            expected="verdict passed",
            remedy="Run the release again.",
        )
    reconciler = RolloutReconciler.of(release, workspace)
    before = reconciler.channel.read().live
    if before and before.release_id == release.id:  # this step was interrupted, perhaps after it released the lock
        reconciler.lock.acquire()
    else:
        reconciler.lock.renew()
    reconciler.tell(reconciler.target.name, "GatePassed", gate.summary)
    moves = reconciler.reach(
        Goal.PROMOTE,
        lambda channel: channel.promoted(
            release.id,
            reconciler.release_uri,
            at=workspace.clock.now(),
            run=release.plan.run,
            keep=release.spec.rollout.keep,
        ),
    )
    reconciler.lock.release()
    address = reconciler.cluster.live_address(release.spec.name)
    was = f"; {before.release_id} was live before" if before and before.release_id != release.id else ""
    data: dict[str, Any] = {
        "release": release.id,
        "was": before.release_id if before else None,
        "service": release.spec.name,
        "namespace": reconciler.cluster.namespace,
        "moves": moves,
    }
    if address is not None:
        data |= {"address": address.host, "ports": address.ports}
    return Outcome(f"{release.id} is live{was}", data)
