"""roll-out: deploy the candidate beside the live release, and wait until it is available. No traffic moves."""

from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.release import Release
from tasks.contracts.spec import GROUP_PATIENCE_S
from tasks.rollout.conductor import Conductor
from tasks.rollout.hosting import check_supported
from tasks.rollout.machine import Goal


def run(release: Release, workspace: Workspace) -> Outcome:
    """Take the model's lease, deploy the release and point the candidate's Service at it.

    Raises:
        ConflictError: another run is releasing this model.
        InputError: a pod cannot start, or the spec asks for what no roll-out does yet.
        UnavailableError: the candidate did not become available in time, or the group was not free.
    """
    check_supported(release.spec)
    conductor = Conductor.of(release, workspace)
    conductor.hold.take(patience_s=GROUP_PATIENCE_S)
    moves = conductor.reach(Goal.ROLL_OUT)
    address = conductor.cluster.candidate_address(release.spec.name)
    return Outcome(
        f"{release.id} is available as {release.spec.name}-candidate",
        {
            "release": release.id,
            "service": f"{release.spec.name}-candidate",
            "namespace": conductor.cluster.namespace,
            "address": address.host,
            "ports": address.ports,
            "moves": moves,
        },
    )
