"""roll-back: remove a refused candidate, leave the live release as it is, and return the replicas that it gave up."""

import logging

from slipway.tasks.adapters.store.object_store import NotFoundError
from slipway.tasks.adapters.store.release_documents import ReleaseDocuments
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import ConflictError, InputError
from slipway.tasks.contracts.fit.step_kinds import CANDIDATE_STEPS, STEP_KINDS
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.release import Release, StepResult
from slipway.tasks.rollout.act.reconciler import RolloutReconciler
from slipway.tasks.rollout.decide.blue_green import Goal, Observed

REASON_CHARS = 500

log = logging.getLogger(__name__)


def run(release: Release, workspace: Workspace) -> Outcome:
    """Remove the candidate's Service and server, record the refusal in the channel, and release the lock.

    A release that the channel names as live, or keeps as a previous one, is not removed. When another run holds the
    model, everything deployed belongs to that run and is left alone.
    """
    reconciler, reason = RolloutReconciler.of(release, workspace), _reason(release, workspace.documents)
    live = reconciler.channel.read().live
    data = {"live": live.release_id if live else None, "reason": reason}
    try:
        reconciler.lock.acquire()
    except ConflictError as error:
        return Outcome(f"nothing to roll back: {error}", {**data, "removed": [], "moves": []})
    before = reconciler.observe(Goal.ROLL_BACK)
    if live is None or live.release_id != release.id:
        reconciler.tell(reconciler.target.name, "RolledBack", reason, warning=True)
        reconciler.tell_model("RolledBack", reason)
    moves = reconciler.reach(Goal.ROLL_BACK)
    moves += _keep(reconciler)
    removed = _removed(release, before, reconciler.observe(Goal.ROLL_BACK))
    if live is None or live.release_id != release.id:
        reconciler.channel.swap(
            lambda channel: channel.refused(release.id, at=workspace.clock.now(), run=release.plan.run, reason=reason)
        )
    reconciler.lock.release()
    stays = f"{live.release_id} stays live" if live else "nothing is live, as before"
    done = "; ".join(moves) or f"nothing of {release.id} was rolled out"
    return Outcome(f"{stays}; {done}", {**data, "removed": removed, "moves": moves})


def _keep(refused: RolloutReconciler) -> list[str]:
    """Put a previous release's server back as it was promoted, where this run planned that release again."""
    entry = refused.channel.read().entry(refused.release.id)
    if entry is None or refused.is_own(entry):
        return []
    try:
        return RolloutReconciler.at(entry.release_uri, refused.workspace, run=refused.run).reach(Goal.KEEP)
    except InputError as error:  # the refusal is recorded all the same
        log.warning("the server of %s stays as this run made it: %s", entry.release_id, error)
        return []


def _removed(release: Release, before: Observed, after: Observed) -> list[str]:
    gone = [f"server {name}" for name in sorted(before.deployed - after.deployed)]
    if before.candidate_selects and not after.candidate_selects:
        gone.append(f"Service {release.spec.name}-candidate")
    if before.live_selects and not after.live_selects:
        gone.append(f"Service {release.spec.name}")
    return gone


def _reason(release: Release, documents: ReleaseDocuments) -> str:
    """The message of the first step of this run that failed or refused."""
    results = [result for step in CANDIDATE_STEPS if (result := _result(step, release, documents))]
    for result in results:
        if result.error is not None:
            return f"{result.step}: {result.error.message}"[:REASON_CHARS]
        if STEP_KINDS[result.step].refusal is not None and result.data.get("verdict") != Verdict.PASSED:
            return result.summary[:REASON_CHARS]
    judged = any(result.step == "gate" for result in results)
    return "its gate passed, but it was not approved or not promoted" if judged else "it never reached its gate"


def _result(step: Step, release: Release, documents: ReleaseDocuments) -> StepResult | None:
    try:
        result = documents.result(release, step)
    except NotFoundError:
        return None
    except InputError as error:  # the reason is told less well, and the candidate goes all the same
        log.warning("the result of %s is left out of the reason: %s", step, error)
        return None
    return result if result.run == release.plan.run else None
