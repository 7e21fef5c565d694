"""The outcome of a run that has ended: a line for a person, an exit code for CI."""

from dataclasses import dataclass

from slipway.cli.airflow.api import Airflow, TaskError
from slipway.cli.exit_codes import DONE, REFUSED, WRONG_INPUT
from slipway.cli.runs.follow import ORDER, RunView
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.fit.forecast import Preview
from slipway.tasks.contracts.measured.gate import GateReport, Verdict
from slipway.tasks.contracts.stored.lease import what_stays
from slipway.tasks.contracts.stored.plan import Plan

PLANNED = "the result of plan"
ROLL_BACK, RELEASES = "roll-back", "release__"


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `text` includes what to do; `remedy` is that part alone."""

    exit_code: int
    text: str
    error: TaskError | None = None

    @property
    def remedy(self) -> str:
        """What to do about the step that failed; empty if it does not say."""
        return self.error.remedy if self.error else ""


def plan_of(view: RunView) -> Plan | None:
    """The run's plan, once the plan step has reported it."""
    result = view.results.get("plan")
    return read_contract(Plan, result.data["plan"], PLANNED) if result and "plan" in result.data else None


def preview_of(view: RunView) -> Preview | None:
    """The run's plan with its forecast, once the plan step has reported them."""
    result = view.results.get("plan")
    if result is None or "plan" not in result.data:
        return None
    preview = {name: result.data[name] for name in Preview.model_fields if name in result.data}
    return read_contract(Preview, {"forecast": None, **preview}, PLANNED)


def live_already(view: RunView) -> str | None:
    """The release that is live according to the channel, where there was nothing to do."""
    plan = plan_of(view)
    return plan.live if plan and plan.action == "nothing" else None


def gate_of(view: RunView) -> GateReport | None:
    """The run's gate report, once the gate has judged."""
    result = view.results.get("gate")
    return (
        read_contract(GateReport, result.data["report"], "the result of gate")
        if result and "report" in result.data
        else None
    )


def evidence_of(view: RunView) -> str | None:
    """URI of the folder with the run's evidence."""
    result = view.results.get("gate")
    evidence = result.data.get("evidence") if result else None
    return evidence if isinstance(evidence, str) else None


def outcome_of(airflow: Airflow, view: RunView) -> Outcome:
    """The outcome of a release that has ended."""
    plan, gate = plan_of(view), gate_of(view)
    if view.run.state == "success":
        if plan and plan.action == "nothing":
            return Outcome(DONE, f"nothing to do: {plan.live} is live and matches the request")
        if plan and _state(view, "promote") == "success":
            return Outcome(DONE, f"promoted: {plan.release_id} is live")
        return Outcome(
            REFUSED, "nothing was promoted although the run succeeded: its tasks were marked by hand in Airflow"
        )
    if gate and _state(view, "gate") == "failed":
        verdict = f"{gate.release_id} {'failed its gate' if gate.verdict is Verdict.FAILED else f'was {gate.verdict}'}"
        back = "; it was rolled back" if _state(view, ROLL_BACK) == "success" else ""
        stays = f", {gate.live} stays live" if gate.live else ""
        left = _left_behind(airflow, view)
        return Outcome(REFUSED, f"refused: {verdict}{back}{stays}{f'.{left}' if left else ''}")
    return _failed(airflow, view)


def note_of(outcome: Outcome, view: RunView) -> str:
    """The outcome with every expectation that the gate did not find met, for whoever sees the run in Airflow."""
    gate = gate_of(view)
    unmet = [judgement.why for judgement in gate.judgements if judgement.verdict is not Verdict.PASSED] if gate else []
    return "; ".join([outcome.text.rstrip("."), *unmet])


def failed_step(view: RunView) -> str | None:
    """The first step that failed."""
    failed = [name for name, task in view.tasks.items() if task.state == "failed"]
    return min(failed, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER), default=None)


def _failed(airflow: Airflow, view: RunView) -> Outcome:
    step = failed_step(view)
    if step is None:
        return Outcome(REFUSED, "failed: no step failed, so the run was stopped by hand or by its time limit")
    error = airflow.error(view.run, view.tasks[step])
    message = error.message if error.message.startswith(f"{step}:") else f"{step}: {error.message}"
    # a rollback has no plan and checks its input in its first step
    wrong = error.final and (step == "plan" or "plan" not in view.tasks)
    left = _left_behind(airflow, view)
    return Outcome(WRONG_INPUT if wrong else REFUSED, f"failed: {message}{left}", error)


def _left_behind(airflow: Airflow, view: RunView) -> str:
    """What a rollback that failed as well left in the cluster; empty if it did not fail."""
    if _state(view, ROLL_BACK) != "failed":
        return ""
    name, also = view.run.dag_id.removeprefix(RELEASES), ""
    if failed_step(view) != ROLL_BACK:
        why = airflow.error(view.run, view.tasks[ROLL_BACK]).message.removeprefix(f"{ROLL_BACK}: ")
        also = f" Roll-back failed too: {why.rstrip('.')}."
    return f"{also} {what_stays(name)}"


def _state(view: RunView, step: str) -> str | None:
    return view.tasks[step].state if step in view.tasks else None
