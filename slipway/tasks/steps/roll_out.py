"""roll-out: deploy the candidate beside the live release, and wait until it is available. No traffic moves."""

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.spec_fields import GROUP_PATIENCE_S
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.rollout.act.reconciler import RolloutReconciler
from slipway.tasks.rollout.decide.blue_green import Goal


def run(release: Release, workspace: Workspace) -> Outcome:
    """Acquire the model's lease, deploy the release and point the candidate's Service at it.

    Raises:
        ConflictError: another run is releasing this model, or rolls it back.
        InputError: a pod cannot start, or the site lacks what the spec requests.
        UnavailableError: the candidate did not become available in time, or another model of the group or a drill kept
            a lease.
    """
    reconciler = RolloutReconciler.of(release, workspace)
    reconciler.lock.acquire(patience_s=GROUP_PATIENCE_S)
    try:
        reconciler.companions.check_free(release)
        moves = reconciler.reach(Goal.ROLL_OUT)
    except PipelineError as error:
        reconciler.tell(reconciler.target.name, "RollOutFailed", str(error), warning=True)
        raise
    reconciler.tell(reconciler.target.name, "CandidateReady", f"{release.id} is available as the candidate")
    address = reconciler.cluster.candidate_address(release.spec.name)
    return Outcome(
        f"{release.id} is available as {release.spec.name}-candidate",
        {
            "release": release.id,
            "service": f"{release.spec.name}-candidate",
            "namespace": reconciler.cluster.namespace,
            "address": address.host,
            "ports": address.ports,
            "moves": moves,
        },
    )
