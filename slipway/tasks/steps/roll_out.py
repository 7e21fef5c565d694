"""roll-out: deploy the candidate beside the live release, and wait until it is available. No traffic moves."""

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import InputError, PipelineError
from slipway.tasks.contracts.spec_fields import GROUP_PATIENCE_S
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.rollout.act.reconciler import RolloutReconciler
from slipway.tasks.rollout.decide.blue_green import Goal


def run(release: Release, workspace: Workspace) -> Outcome:
    """Acquire the model's lease, deploy the release and point the candidate's Service at it.

    Raises:
        ConflictError: another run is releasing this model, or rolls it back.
        InputError: a pod cannot start, the site lacks what the spec requests, or a rollback made the release live.
        UnavailableError: the candidate did not become available in time, or another model of the group or a drill kept
            a lease.
    """
    reconciler = RolloutReconciler.of(release, workspace)
    reconciler.lock.acquire(patience_s=GROUP_PATIENCE_S)
    try:
        _check_not_live(reconciler)
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


def _check_not_live(reconciler: RolloutReconciler) -> None:
    """Refuse to change the server that clients use: this run planned the release before a rollback made it live.

    Raises:
        InputError: the channel leads to the release as another run made it.
    """
    live = reconciler.channel.read().live
    if live is not None and live.release_id == reconciler.release.id and not reconciler.is_own(live):
        raise InputError(
            f"{live.release_id} became live by a rollback after this run had planned it",
            found=f"live since {live.since:%Y-%m-%d %H:%M}",
            remedy="Run the release again: its plan compares with what is live now.",
        )
