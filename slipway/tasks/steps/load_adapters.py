"""load-adapters: gate adapters at one pod of the live release, have every pod load them, and let clients name them."""

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import ConflictError, InputError
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.stored.adapters import AdapterEntry, AdapterSet, AdaptersRequest, FetchedAdapters
from slipway.tasks.contracts.stored.release import PREVIOUS
from slipway.tasks.rollout.act.adapters import AdapterRollout
from slipway.tasks.rollout.act.reconciler import RolloutReconciler

ROWS = "adapters.json"


def run(request: AdaptersRequest, workspace: Workspace) -> Outcome:
    """Make the live release serve exactly the adapters that fetch-adapters stored, or those before.

    Raises:
        InputError: nothing is live, or there were no other adapters before.
        ConflictError: another run changes the model or waits for approval, or another release went live meanwhile.
        UnavailableError: pods did not take the adapters up in time.
    """
    channel = workspace.documents.channel(request.model)
    if channel.live is None:
        raise InputError(f"nothing of {request.model} is live", remedy=f"Run `slipway release {request.model}` first.")
    live = RolloutReconciler.at(channel.live.release_uri, workspace, run=request.run)
    live.lock.check_ended()
    with live.holding():
        _check_live(request.model, live.release.id, workspace)
        goes_back = request.to == PREVIOUS
        fetched = None if goes_back else _fetched(request, live.release.id, workspace)
        rollout = AdapterRollout(live, fetched.questions if fetched else {}, gated=not goes_back)
        wanted = fetched.adapters if fetched else _before(rollout, request)
        change = AdapterSet(
            adapters=wanted,
            event="rolled-back" if goes_back else "loaded",
            run=request.run,
            at=workspace.clock.now(),
            reason=request.reason,
        )
        passed = rollout.reach(change)
        words = ", ".join(entry.words for entry in wanted) or "none"
        if passed:
            live.tell(live.target.name, "AdaptersChanged", f"adapters: {words}")
    rows = [row.model_dump(mode="json") for row in rollout.rows]
    uri = workspace.evidence(live.release, request.run).write(ROWS, rows) if rows else ""
    wrong = [row for row in rollout.rows if not row.ok]
    found = "" if not wrong else f"; the first wrong answer: {wrong[0].error or wrong[0].answer!r}"
    return Outcome(
        f"{live.release.id} serves adapters: {words}"
        if passed
        else f"{len(wrong)} of {len(rows)} answers are missing or wrong at one pod, and no name has changed{found}",
        {
            "verdict": Verdict.PASSED if passed else Verdict.FAILED,
            "release_id": live.release.id,
            "adapters": [entry.model_dump(mode="json") for entry in wanted],
            "answers_uri": uri,
        },
    )


def _check_live(model: str, release_id: str, workspace: Workspace) -> None:
    """Check that no other release went live before this run had the lock.

    Raises:
        ConflictError: one did.
    """
    live = workspace.documents.channel(model).live
    if live is None or live.release_id != release_id:
        raise ConflictError(
            f"another release of {model} went live as this run began, so nothing was changed",
            found=live.release_id if live else "none",
            expected=release_id,
            remedy="Run it again, for that release.",
        )


def _fetched(request: AdaptersRequest, release_id: str, workspace: Workspace) -> FetchedAdapters:
    fetched = workspace.documents.fetched_adapters(request.model, request.run)
    if fetched.release != release_id:
        raise ConflictError(
            f"another release of {request.model} went live after its adapters were checked, so nothing was changed",
            found=release_id,
            expected=fetched.release,
            remedy="Run it again, for that release.",
        )
    return fetched


def _before(rollout: AdapterRollout, request: AdaptersRequest) -> tuple[AdapterEntry, ...]:
    document = rollout.document.read()
    before = document.before(request.run)
    done = bool(document.sets) and document.sets[0].run == request.run
    if before is None or (document.means(before) and not done):
        raise InputError(
            f"{document.release_id} served no other adapters before",
            found=", ".join(document.names) or "no adapters",
            remedy="Name the adapters in the spec, and run it without --previous.",
        )
    return before
