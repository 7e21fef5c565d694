"""revert: put the previous release of a model back, long after another one was promoted."""

from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.release import RevertRequest
from tasks.rollout.revert import revert


def run(request: RevertRequest, workspace: Workspace) -> Outcome:
    """Send all traffic to the newest previous release. Running it again in the same run goes back no further.

    Raises:
        InputError: the model was never released, has no previous release, or that one can no longer start.
        ConflictError: a release of the model is in progress.
        UnavailableError: the previous release did not become available in time.
    """
    return revert(request.name, workspace, run=request.run, reason=request.reason)
