"""promote: all traffic to the release that passed the gate, then the channel, then what is no longer kept."""

from typing import Any

from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.errors import InputError
from tasks.contracts.gate import Verdict
from tasks.contracts.release import Release
from tasks.rollout.conductor import Conductor
from tasks.rollout.machine import Goal


def run(release: Release, workspace: Workspace) -> Outcome:
    """Flip the live Service, swap the channel, retire releases beyond `rollout.keep`, and let go of the model.

    Raises:
        InputError: this run's gate did not pass, or the release failed while `rollout.bake_s` passed.
        ConflictError: another run took the model meanwhile.
    """
    gate = workspace.read_result(release, "gate")
    if gate.run != release.plan.run or gate.data.get("verdict") != Verdict.PASSED:
        raise InputError(
            f"the gate of run {release.plan.run} did not pass (found {gate.data.get('verdict')} of run {gate.run}); "
            "only a passed gate promotes. Run the release again."
        )
    conductor = Conductor.of(release, workspace)
    before = conductor.channel.read().live
    if before and before.release_id == release.id:  # this step was cut short, perhaps after it let go of the model
        conductor.hold.take()
    else:
        conductor.hold.keep()
    moves = conductor.reach(
        Goal.PROMOTE,
        lambda channel: channel.promoted(
            release.id,
            conductor.release_uri,
            at=workspace.clock.now(),
            run=release.plan.run,
            keep=release.spec.rollout.keep,
        ),
    )
    conductor.hold.drop()
    address = conductor.cluster.live_address(release.spec.name)
    was = f", before it {before.release_id}" if before and before.release_id != release.id else ""
    data: dict[str, Any] = {
        "release": release.id,
        "was": before.release_id if before else None,
        "service": release.spec.name,
        "namespace": conductor.cluster.namespace,
        "moves": moves,
    }
    if address is not None:
        data |= {"address": address.host, "ports": address.ports}
    return Outcome(f"{release.id} is live{was}", data)
