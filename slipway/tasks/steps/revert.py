"""revert: put the previous release of a model back, or the live one after its cluster was lost."""

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.stored.release import LIVE, PREVIOUS, RevertRequest
from slipway.tasks.rollout.act.revert import restore, revert


def run(request: RevertRequest, workspace: Workspace) -> Outcome:
    """Send all traffic to the release that was requested. Running it again in the same run goes back no further.

    Raises:
        InputError: the model was never released, has no previous release, or that one can no longer start.
        ConflictError: a release of the model is in progress.
        UnavailableError: the previous release did not become available in time.
    """
    if request.to == LIVE:
        return restore(request.name, workspace, run=request.run)
    to = None if request.to == PREVIOUS else request.to
    return revert(request.name, workspace, run=request.run, reason=request.reason, to=to)
