"""The approval by a person, between a passed gate and live traffic."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.standard.exceptions import HITLRejectException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param

from slipway.airflow.doc_text import code, fenced
from slipway.airflow.notify.links import report_url
from slipway.airflow.refusals import NO_RETRY, refused
from slipway.airflow.reported import RESULT_KEY
from slipway.tasks.contracts.fit.surge import Interruption
from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.stored.release import StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

MOST_CHANGES = 20
REASON, REASON_CHARS = "reason", 500
"""The field in which a person who answers says why."""
COMMIT_DIGITS = 12


class Approval(ApprovalOperator):
    """Waits for a person when the run's parameter `approval` says `human`, and is skipped otherwise.

    While it waits it occupies no worker, and from Airflow 3.3 on no triggerer. A rejection fails the task at once, so
    that the release is rolled back and the run fails. A database or triggerer that is briefly unavailable is retried,
    because that says nothing about the release.
    """

    template_fields: "Sequence[str]" = ()

    def __init__(self, *, name: str, keep: int, warm: bool = True, **task: Any) -> None:
        """`name` is the name of the model, `keep` its spec's rollout.keep, `warm` whether kept releases keep pods."""
        why = Param("", type="string", maxLength=REASON_CHARS, title="Reason", description="why, for whoever is told")
        super().__init__(
            subject=f"Promote the new release of {name}?", fail_on_reject=True, params={REASON: why}, **NO_RETRY, **task
        )
        self.name, self.keep, self.warm = name, keep, warm

    def execute(self, context: "Context") -> Any:
        """Show the gate's judgements and wait for a decision, unless the run needs no approval."""
        if context["params"]["approval"] == "none":
            raise AirflowSkipException("this run needs no approval: its parameter `approval` is `none`")
        gate, plan = (
            StepResult.model_validate(context["ti"].xcom_pull(task_ids=step, key=RESULT_KEY))
            for step in ("gate", "plan")
        )
        url = report_url(str(gate.data["evidence"]), context["ti"].dag_id, context["run_id"])
        risks = risk(self.name, gate, self.keep, warm=self.warm)
        self.body = "\n\n".join((evidence(gate, url), changes(plan), risks, *interrupted(plan)))
        return super().execute(context)

    def execute_complete(self, context: "Context", event: dict[str, Any]) -> Any:
        """Complete as the parent does, but say who rejected and why, and never retry a rejection."""
        with suppress(HITLRejectException):
            return super().execute_complete(context, event)
        user = event.get("responded_by_user") or {}
        name = user.get("name") if isinstance(user, dict) else getattr(user, "name", None)
        reason = (event.get("params_input") or {}).get(REASON)
        raise refused(context, f"approval: rejected by {name or 'an unnamed user'}{f': {reason}' if reason else ''}")


def evidence(gate: StepResult, url: str) -> str:
    """Write what a person needs to decide as Markdown: each judgement, what could not be judged, and the evidence.

    `url` is the report's address; empty where it has none.
    """
    report = GateReport.model_validate(gate.data["report"])
    live = f"the live release {code(report.live)}" if report.live else "nothing: no release is live"
    judged = [f"- {judgement.verdict}: {judgement.why}" for judgement in report.judgements]
    judged += [f"- not judged: {reason}" for reason in report.not_applicable]
    verdict = f"{code(report.release_id)} would replace {live}. The gate's verdict is **{report.verdict}**."
    folder = str(gate.data["evidence"])
    link = f"[Report]({url}), stored below {code(folder)}" if url else f"Evidence: {code(folder)}"
    return "\n\n".join([verdict, fenced("\n".join(judged), "text"), link])


def changes(plan: StepResult) -> str:
    """Write as Markdown what is different from the live release, and what plan warned of."""
    found = [f"{stage}: {reason}" for stage, planned in plan.data["stages"].items() for reason in planned["changed"]]
    lines = [f"- {line}" for line in found[:MOST_CHANGES]] or ["- nothing that an artifact is made of"]
    if len(found) > MOST_CHANGES:
        lines.append(f"- and {len(found) - MOST_CHANGES} more: see the log of plan")
    lines += [f"- warning: {warning}" for warning in plan.data["plan"]["warnings"]]
    commit = f"From commit `{plan.data['commit'][:COMMIT_DIGITS]}`. What changes:"
    paragraphs = [commit, fenced("\n".join(lines), "text")]
    if plan.data["plan"]["live"] and (rollout := plan.data["plan"].get("rollout")):
        paragraphs.append(f"If you approve: {rollout}.")
    return "\n\n".join(paragraphs)


def interrupted(plan: StepResult) -> list[str]:
    """Say what clients of the live release lose now, while the candidate has its GPUs (rollout.surge none)."""
    if (found := plan.data.get("interruption")) is None:
        return []
    lost = Interruption.model_validate(found)
    live = code(lost.live)
    now = f"runs with {lost.kept} of {lost.replicas} replicas" if lost.kept else "is stopped, so every request fails"
    text = (
        f"**Until you decide, {live} {now}**, because the candidate has its GPUs. If you approve, the candidate "
        f"takes the requests and {live} is removed. If you reject, the candidate is removed and {live} "
        "gets its replicas back, which takes as long as their pods take to become ready."
    )
    return [text]


def risk(name: str, gate: StepResult, keep: int, *, warm: bool = True) -> str:
    """Say what can be done if the release misbehaves once it is live."""
    live = GateReport.model_validate(gate.data["report"]).live
    if live is None:
        return "If it misbehaves, there is no release to go back to."
    if keep < 2:  # noqa: PLR2004 - the live one and one more
        return f"If it misbehaves, there is no way back: `rollout.keep` is {keep}, so {code(live)} is removed."
    if not warm:
        return (
            f"If it misbehaves, `slipway rollback {name}` returns to {code(live)}, whose pods end after the promotion. "
            "They start again on GPUs that the new release gives up for them, and requests may fail until then."
        )
    return f"If it misbehaves, `slipway rollback {name}` returns to {code(live)}, whose pods stay, within seconds."
