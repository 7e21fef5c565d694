"""Scripts of releases: what Airflow shows of a run from its start to its end."""

from datetime import UTC, datetime

from slipway.cli.runs.follow import ORDER
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.spec.gate import Expectation
from slipway.tasks.contracts.stored.release import REMEDY_PREFIX, StepResult
from tests.fakes.releases import release
from tests.fakes.servers.airflow_server import Frame, Script

DAG = "release__demo"
STORED = ("download", "quantize")


def result(step, summary="", outcome="done", **data):
    document = StepResult(
        step=step,
        run="run-1",
        outcome=outcome,
        summary=summary or f"{step} went well",
        data=data,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=4.2,
    )
    return document.model_dump(mode="json")


def planned(
    action="release", live=None, forecast=None, unapplied=(), needed=(), interruption=None, transfer=None, **fields
):
    plan = release(live=live).plan
    stages = {
        stage: one.model_copy(update={"stored": stage in STORED, "changed": () if stage in STORED else ("new",)})
        for stage, one in plan.stages.items()
    }
    plan = plan.model_copy(update={"action": action, "stages": stages, "live": live, **fields})
    told = {"forecast": forecast, "unapplied": list(unapplied), "needed": list(needed)}
    told |= {"interruption": interruption, "transfer": transfer}
    return result("plan", "3 of 5 stages to make", plan=plan.model_dump(mode="json"), **told)


def gated(verdict, live=None):
    judgement = Judgement(
        expectation=Expectation(metric="answer_accuracy", at_least=0.95),
        what="answer_accuracy",
        verdict=verdict,
        observed=0.333,
        limit=0.95,
        unit="",
        count=96,
        why="answer_accuracy is 0.333, at least 0.95 (n=96)",
    )
    report = GateReport(release_id=release().id, live=live, verdict=verdict, judgements=(judgement,))
    return result("gate", verdict=verdict.value, report=report.model_dump(mode="json"), evidence="s3://b/e")


def results(verdict=Verdict.PASSED, live=None):
    steps = {step: result(step) for step in ORDER if step not in {"plan", "gate", "approval", "roll-back"}}
    stored = {step: result(step, f"{step} is stored", "stored") for step in STORED}
    return {**steps, **stored, "plan": planned(live=live), "gate": gated(verdict, live)}


def promoted():
    ended = dict.fromkeys(ORDER, "success") | {"approval": "skipped", "roll-back": "skipped", "released": "success"}
    begun = dict.fromkeys(ORDER) | {"plan": "success", "download": "success", "quantize": "running"}
    frames = [Frame("queued"), Frame("running", begun), Frame("success", ended)]
    return Script(frames, results())


def nothing_to_do():
    live = release().id
    frames = [Frame("success", dict.fromkeys(ORDER, "skipped") | {"plan": "success"})]
    return Script(frames, {"plan": planned("nothing", live)})


def refused():
    tasks = dict.fromkeys(ORDER, "success")
    tasks |= {"gate": "failed", "approval": "upstream_failed", "promote": "upstream_failed", "roll-back": "success"}
    return Script([Frame("failed", tasks)], results(Verdict.FAILED, "demo-older"))


def failed(step, kind, message, remedy=""):
    before = ORDER[: ORDER.index(step)]
    tasks = dict.fromkeys(ORDER, "upstream_failed") | dict.fromkeys(before, "success") | {step: "failed"}
    detail = {"exc_type": kind, "exc_value": message, "frames": [], "is_cause": False}
    log = [
        {"event": "::group::Log message source details", "sources": ["/logs/attempt=1.log"]},
        {"timestamp": "2026-01-01T00:00:00Z", "event": "resolving slipway/demo-llama at v9", "level": "info"},
        {"timestamp": "2026-01-01T00:00:01Z", "event": "Task failed", "level": "error", "error_detail": [detail]},
    ]
    if remedy:
        log.insert(2, {"timestamp": "2026-01-01T00:00:01Z", "event": f"{REMEDY_PREFIX}{remedy}", "level": "warning"})
    return Script([Frame("failed", tasks)], {key: results()[key] for key in before}, {step: log})
