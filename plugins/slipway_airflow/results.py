"""What a step's pod and its result document say about the task: pure judgement, no call to anything."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow.sdk.exceptions import AirflowException, AirflowFailException
from kubernetes.client import models as k8s

from tasks.contracts.artifact import Layout, Stage
from tasks.contracts.errors import InputError
from tasks.contracts.plan import StagePlan
from tasks.contracts.release import Step, StepResult

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
    """The end of the container `base`; None when the pod is gone or the container never ran or still runs."""
    statuses = (pod.status.container_statuses or []) if pod and pod.status else []
    for status in statuses:
        state = status.state and status.state.terminated
        if status.name == "base" and state:
            return Ended(state.started_at, int(state.exit_code), state.reason or "", (state.message or "").strip())
    return None


def is_of(result: StepResult, run: str, end: Ended | None) -> bool:
    """Whether `result` was written by the pod that just ended, and not left behind by an earlier one.

    Results are overwritten run by run and try by try. The run tells other runs apart; the time tells tries apart, and
    may be compared because both stamps come from the clock of the pod's node.
    """
    started_at = end.started_at if end else None
    return result.run == run and (started_at is None or result.started_at >= started_at - STATUS_RESOLUTION)


def failure(step: Step, result: StepResult | None, end: Ended | None, otherwise: str) -> AirflowException:
    """The exception of a failed step: its class decides whether Airflow tries again, its text tells a person why.

    A wrong input fails at once (65), for a retry cannot help; so does a container that outgrew its memory, for it would
    again. Everything else may be tried again: what was unavailable (75), and what has no other name (70).

    Args:
        step: the step.
        result: what this pod wrote, if it did.
        end: how its container ended, if it ran.
        otherwise: the message when neither says anything.
    """
    error = result.error if result else None
    if error:
        final = error.exit_code == InputError.exit_code
        return (AirflowFailException if final else AirflowException)(f"{step}: {error.message}")
    if end and end.reason == "OOMKilled":
        return AirflowFailException(
            f"{step}: the container outgrew its memory limit and was killed. "
            "Raise the memory of its shape in the site file, or ask for less in the spec; then clear this task."
        )
    if end is None:
        return AirflowException(f"{step}: {otherwise}")
    words = f"{step}: {end.message or otherwise} (exit code {end.exit_code}{', ' + end.reason if end.reason else ''})"
    return (AirflowFailException if end.exit_code == InputError.exit_code else AirflowException)(words)


def stored_stage(stage: Stage, planned: StagePlan, release_uri: str, run: str, layout: Layout) -> StepResult:
    """The result of a stage whose artifact was stored before the run began: no pod has to tell."""
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
