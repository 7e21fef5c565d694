"""Judges a task by its step's pod and result document. It asks nobody."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow.providers.cncf.kubernetes.utils.pod_manager import PodNotFoundException
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from kubernetes.client import models as k8s

from slipway.airflow.outages import NoAnswerError
from slipway.airflow.site import current_site
from slipway.airflow.starting import PodCannotStartError
from slipway.tasks.contracts.pods.pod_failures import EXIT_CODES, PodFailure, last_words
from slipway.tasks.contracts.pods.refusals import FINAL, rejection
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.artifact import Layout, Stage
from slipway.tasks.contracts.stored.plan import StagePlan
from slipway.tasks.contracts.stored.release import StepResult

STATUS_RESOLUTION = timedelta(seconds=1)
"""Kubernetes cuts a container's startedAt to whole seconds."""


@dataclass(frozen=True)
class Ended:
    """How the step's container ended."""

    started_at: datetime | None
    exit_code: int
    reason: str
    message: str


def ended(pod: k8s.V1Pod | None) -> Ended | None:
    """How the container `base` ended; None when the pod is gone, or the container never ran or is still running."""
    statuses = (pod.status.container_statuses or []) if pod and pod.status else []
    for status in statuses:
        state = status.state and status.state.terminated
        if status.name == "base" and state:
            return Ended(state.started_at, int(state.exit_code), state.reason or "", last_words(state.message))
    return None


def is_of(result: StepResult, run: str, end: Ended | None) -> bool:
    """Whether the pod that just ended wrote `result`, and not an earlier one.

    Every run and every try overwrites the result. The run identity distinguishes runs; the time distinguishes tries,
    and can be compared because both times come from the clock of the pod's node.
    """
    started_at = end.started_at if end else None
    return result.run == run and (started_at is None or result.started_at >= started_at - STATUS_RESOLUTION)


def failure(
    step: Step, result: StepResult | None, pod_failure: PodFailure | None, end: Ended | None, otherwise: str
) -> AirflowException:
    """The exception of a failed step: its class decides whether Airflow tries again, its text says why.

    slipway/tasks/contracts/pods/pod_failures.py decides whether another try can help, for exit codes and for pods.

    Args:
        step: the step.
        result: the result that this pod wrote, if any.
        pod_failure: why the pod did not start or was ended, if its container did not end by itself.
        end: how its container ended, if it ran.
        otherwise: the message when none of these says anything.
    """
    error = result.error if result else None
    if error:
        return _exception(f"{step}: {error.message}", retry=EXIT_CODES.get(error.exit_code, True))
    if pod_failure:
        again = " Airflow tries again while the task has tries left." if pod_failure.retry else ""
        return _exception(f"{step}: {pod_failure}{again}", retry=pod_failure.retry)
    if end is None:
        return AirflowException(f"{step}: {otherwise}")
    text = f"{step}: {end.message or otherwise} (exit code {end.exit_code}{', ' + end.reason if end.reason else ''})"
    return _exception(text, retry=EXIT_CODES.get(end.exit_code, True))


def refused(step: Step, status: int, message: str, shape: str) -> AirflowException:
    """The exception of a step whose request the cluster rejected.

    Args:
        step: the step.
        status: the HTTP status.
        message: the API server's own words.
        shape: name of the pod's shape in the site file.
    """
    text = rejection(status, message, current_site().kubernetes.pipeline_namespace, shape)
    return _exception(f"{step}: {text}", retry=status not in FINAL)


def _exception(text: str, *, retry: bool) -> AirflowException:
    return AirflowException(text) if retry else AirflowFailException(text)


def no_answer(error: BaseException | None) -> NoAnswerError | None:
    """That the API server did not answer, if that led to `error`."""
    while error is not None and not isinstance(error, NoAnswerError):
        error = error.__cause__ or error.__context__
    return error


def cannot_start(error: BaseException | None, lost: Callable[[str], PodFailure]) -> PodFailure | None:
    """The reason why the pod did not start or is gone, if that led to `error`; `lost` says why the pod of a name is."""
    while error is not None:
        if isinstance(error, PodCannotStartError):
            return error.failure
        if isinstance(error, PodNotFoundException):
            return lost(str(error).split()[1])  # "Pod <namespace>/<name> not found ..."
        error = error.__cause__ or error.__context__
    return None


def stored_stage(stage: Stage, planned: StagePlan, release_uri: str, run: str, layout: Layout) -> StepResult:
    """The result of a stage whose artifact was stored before the run began, for which no pod runs."""
    return StepResult(
        step=stage,
        release=release_uri,
        run=run,
        outcome="stored",
        summary=f"{stage} {planned.key[:12]} is stored; no pod was started",
        data={"key": planned.key, "uri": layout.artifact(stage, planned.key)},
        started_at=datetime.now(UTC),
        seconds=0.0,
    )


def unneeded(step: Step, why: str, release_uri: str, run: str) -> StepResult:
    """The result of a step that has nothing to do for this release, for which no pod runs."""
    now = datetime.now(UTC)
    return StepResult(
        step=step, release=release_uri, run=run, outcome="stored", summary=why, data={}, started_at=now, seconds=0.0
    )
