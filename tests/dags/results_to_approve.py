"""Results of plan and gate, which a person who approves a release is shown."""

from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.spec.gate import Expectation

CANARY = "canary: 5, 25 % of the requests, each watched for 60 s; then all of them"


def passed(runs, live="demo-0", *, why="error_rate is 0, at most 0 (n=64)", not_judged=()):
    """The gate's result."""
    judgement = Judgement(
        expectation=Expectation(metric="error_rate", at_most=0.0),
        what="error_rate",
        verdict=Verdict.PASSED,
        observed=0.0,
        limit=0.0,
        unit="",
        count=64,
        why=why,
    )
    report = GateReport(
        release_id="demo-1", live=live, verdict=Verdict.PASSED, judgements=(judgement,), not_applicable=not_judged
    )
    data = {"report": report.model_dump(mode="json"), "evidence": "s3://slipway/team-a/releases/demo/evidence"}
    return runs.result("gate", data=data)


def planned(runs, *reasons, warnings=(), live="demo-0"):
    """The plan's result."""
    stages = {"download": {"changed": list(reasons)}, "build": {"changed": ["download changed"] if reasons else []}}
    plan = {"warnings": list(warnings), "live": live, "rollout": CANARY}
    return runs.result("plan", data={"commit": "c" * 40, "stages": stages, "plan": plan})
