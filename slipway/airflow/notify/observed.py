"""Reads what a notification says from the results that a run's tasks left."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

from slipway.airflow.notify import links
from slipway.airflow.notify.notice import Notice
from slipway.airflow.reported import reported
from slipway.tasks.contracts.measured.gate import GateReport, Verdict
from slipway.tasks.contracts.notifications import Event
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.lease import what_stays
from slipway.tasks.contracts.stored.release import WHY_KEY, StepResult

if TYPE_CHECKING:
    from airflow.sdk import Context

APPROVAL, ROLL_BACK = "approval", "roll-back"
ORDER = (*get_args(Step), APPROVAL)
"""Tasks in the order in which their failures are told."""


def bare(context: "Context", event: Event, model: str) -> Notice:
    """What is known without the run's results."""
    ti, run_id = context["ti"], context["run_id"]
    return Notice(
        event=event,
        model=model,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        dag_id=ti.dag_id,
        run_id=run_id,
        run_url=links.run_url(ti.dag_id, run_id),
    )


class Observed:
    """The results of a run's tasks, as a task or a callback of the same run reads them."""

    def __init__(self, context: "Context") -> None:
        """`context` is that of a task, or of its callback."""
        self.context, self.ti = context, context["ti"]

    def result(self, task: str) -> StepResult | None:
        """What the step of a task reported; None if it did not succeed."""
        return reported(self.context, task)

    def failures(self, model: str) -> Iterator[str]:
        """Why tasks of the run failed and what that leaves, a line each; the gate's own lines are in its report."""
        run_id = self.context["run_id"]
        states = self.ti.get_task_states(dag_id=self.ti.dag_id, run_ids=[run_id]).get(run_id, {})
        failed = [task for task in ORDER if states.get(task) == "failed"]
        for task in failed:
            if task == "gate" and self.result(task):
                continue
            why = self.ti.xcom_pull(task_ids=task, key=WHY_KEY)
            yield str(why) if why else f"{task}: failed; its log says why"
        if not failed:
            yield "the run was ended before it finished"
        if states.get(ROLL_BACK) == "success":
            yield "the candidate was rolled back"
        if states.get(ROLL_BACK) == "failed":
            yield what_stays(model)


def of_release(context: "Context", event: Event, model: str) -> Notice:
    """A promotion, a refusal or a question, from the results of plan, gate and promote."""
    observed = Observed(context)
    plan, gate, promote = (observed.result(task) for task in ("plan", "gate", "promote"))
    report = GateReport.model_validate(gate.data["report"]) if gate and "report" in gate.data else None
    first = [promote.summary] if promote and event == "promoted" else []
    why = [*judged(report), *(observed.failures(model) if event == "refused" else ())]
    planned: dict[str, Any] = plan.data if plan else {}
    evidence = str(gate.data["evidence"]) if gate and report else ""
    ti, run_id = context["ti"], context["run_id"]
    return replace(
        bare(context, event, model),
        release=planned.get("plan", {}).get("release_id") or "",
        why=(*first, *why),
        report_url=links.report_url(evidence, ti.dag_id, run_id) if evidence else "",
        approval_url=links.approval_url(ti.dag_id, run_id, APPROVAL) if event == "waiting-for-approval" else "",
        release_uri=(plan.release if plan else None) or "",
        evidence_uri=evidence,
        commit=planned.get("commit") or "",
        revision=planned.get("plan", {}).get("source", {}).get("revision") or "",
        measured={
            each.what: each.observed for each in (report.judgements if report else ()) if each.observed is not None
        },
    )


def of_rollback(context: "Context", event: Event, model: str) -> Notice | None:
    """A rollback; None if the run only deployed again what was live."""
    result = Observed(context).result("revert")
    if result is None or not result.data.get("was"):
        return None
    why = [result.summary, *([f"reason: {result.data['reason']}"] if result.data.get("reason") else [])]
    return replace(bare(context, event, model), release=result.data["release"], why=tuple(why))


def of_drill(context: "Context", event: Event, model: str) -> Notice:
    """A drill that found something, or that could not be held."""
    observed = Observed(context)
    result = observed.result("drill")
    uri = str(result.data.get("report_uri") or "") if result else ""
    why = result.summary if result else observed.ti.xcom_pull(task_ids="drill", key=WHY_KEY)
    return replace(
        bare(context, event, model),
        why=(str(why or "the drill could not be held; its log says why"),),
        report_url=links.document_url(uri) if uri else "",
        evidence_uri=uri,
    )


def judged(report: GateReport | None) -> list[str]:
    """The gate's lines, the failing ones first."""
    if report is None:
        return []
    order = list(Verdict)
    lines = sorted(report.judgements, key=lambda each: -order.index(each.verdict))
    return [
        *(f"{each.verdict}: {each.why}" for each in lines),
        *(f"not judged: {why}" for why in report.not_applicable),
    ]
