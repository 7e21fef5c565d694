"""drill: try out the way back to the previous release, and the way forward again, under load."""

import contextlib
from collections.abc import Callable, Sequence

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.load.steady_load import BackgroundLoad, SteadyLoad
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import ConflictError
from slipway.tasks.contracts.measured.drill import SKIPPED, DrillReport, DrillRequest
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.spec_fields import PLAIN_ANSWER_TOKENS
from slipway.tasks.rollout.act.drill import REPORT, Drill, check_can_flip
from slipway.tasks.rollout.act.reconciler import RolloutReconciler
from slipway.tasks.serving.rendered.questions import TIMEOUT_S

LoadOf = Callable[[str, float, Sequence[GenerateRequest], float, Clock], BackgroundLoad]
"""Makes the load: the model's name, requests per second, what is sent, seconds for an answer, a clock."""


def run(request: DrillRequest, workspace: Workspace, *, load_of: LoadOf = SteadyLoad) -> Outcome:
    """Flip the live Service to the previous release and back while requests are sent; write evidence/<run>/drill.json.

    Nothing is tried, and nothing fails, where the model has no previous release or another run changes the model.

    Raises:
        InputError: the releases cannot be exchanged without an interruption, or the live one does not serve.
        UnavailableError: the live release could not be given its traffic back.
    """
    documents = workspace.documents
    channel = documents.channel(request.name)
    if channel.live is None or not channel.previous:
        return _skipped(f"{request.name} has no previous release to go back to, so there is nothing to try out")
    entries = channel.live, channel.previous[0]
    live, previous = (RolloutReconciler.at(entry.release_uri, workspace, run=request.run) for entry in entries)
    if (other := live.lock.unfinished()) is not None:
        return _skipped(f"run {other.holder} of {request.name} has not ended")
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(live.holding())
        except ConflictError as error:
            return _skipped(str(error))
        if documents.channel(request.name) != channel:
            return _skipped(f"a release of {request.name} ended as the drill began")
        check_can_flip(live, previous)
        # prompts alone: what a question asks for besides, such as an adapter, the previous release may not have
        questions = [GenerateRequest(each.prompt, PLAIN_ANSWER_TOKENS) for each in live.release.spec.gate.smoke]
        load = load_of(request.name, request.settings.request_rate, questions, TIMEOUT_S, workspace.clock)
        report = Drill(live, previous, request.settings, load, workspace, request.run).hold()
    document = report.model_dump(mode="json")
    uri = workspace.evidence(live.release, request.run).write(REPORT, document)
    return Outcome(summary(report), {"verdict": report.verdict, "report": document, "report_uri": uri})


def summary(report: DrillReport) -> str:
    """What a drill found, in one line."""
    requests = f"{report.failed} of {report.requests} requests failed"
    flips = " and ".join(f"{flip.seconds:.1f} s" for flip in report.flips)
    if report.problem:
        return f"{report.live} stays live; the drill was not completed: {report.problem}"
    if report.first_failure:
        return f"{requests}, the first with: {report.first_failure}; flips took {flips}"
    if report.verdict is Verdict.INCONCLUSIVE:
        return f"{requests}, and part of the drill had none; flips took {flips}"
    slowest = max(phase.latency_p99_ms or 0.0 for phase in report.phases)
    return f"{requests}, p99 {slowest:.0f} ms at most; flips took {flips}"


def _skipped(why: str) -> Outcome:
    return Outcome(f"no drill: {why}", {"verdict": SKIPPED})
