"""The approval by a person, between a passed gate and live traffic."""

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.exceptions import HITLRejectException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tasks.contracts.gate import GateReport
from tasks.contracts.release import StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context


class Approval(ApprovalOperator):
    """Waits for a person when the run's parameter `approval` says `human`, and is skipped otherwise.

    While it waits it occupies neither a worker nor a triggerer. A rejection fails the task at once, so that the release
    is rolled back and the run fails. A database or triggerer that is briefly unavailable is retried, because that says
    nothing about the release.
    """

    template_fields: "Sequence[str]" = ()

    def __init__(self, *, name: str, **task: Any) -> None:
        """`name` is the name of the model."""
        super().__init__(subject=f"Promote the new release of {name}?", fail_on_reject=True, **task)

    def execute(self, context: "Context") -> Any:
        """Show the gate's judgements and wait for a decision, unless the run needs no approval."""
        if context["params"]["approval"] == "none":
            raise AirflowSkipException("this run needs no approval: its parameter `approval` is `none`")
        self.body = evidence(StepResult.model_validate(context["ti"].xcom_pull(task_ids="gate", key="return_value")))
        return super().execute(context)

    def execute_complete(self, context: "Context", event: dict[str, Any]) -> Any:
        """Complete as the parent does, but name the person who rejected, and never retry a rejection."""
        try:
            return super().execute_complete(context, event)
        except HITLRejectException as error:
            user = event.get("responded_by_user") or {}
            name = user.get("name") if isinstance(user, dict) else getattr(user, "name", None)
            raise AirflowFailException(
                f"approval: rejected by {name or 'an unnamed user'}. The candidate is rolled back; "
                "the live release stays. Trigger a new run to try again."
            ) from error


def evidence(gate: StepResult) -> str:
    """Write what a person needs to decide as Markdown: each judgement, what could not be judged, and the evidence."""
    report = GateReport.model_validate(gate.data["report"])
    live = f"the live release `{report.live}`" if report.live else "nothing: no release is live"
    lines = [f"`{report.release_id}` would replace {live}. The gate's verdict is **{report.verdict}**.", ""]
    lines += [f"- {judgement.verdict}: {judgement.why}" for judgement in report.judgements]
    lines += [f"- not judged: {reason}" for reason in report.not_applicable]
    return "\n".join([*lines, "", f"Evidence: `{gate.data['evidence']}`"])
