"""A model with a live release and a candidate that its gate refused, as their documents in the object store."""

from datetime import UTC, datetime, timedelta

from slipway.tasks.contracts.measured.canary import CanaryLook, CanaryRecord
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict, worst
from slipway.tasks.contracts.measured.measurement import AnswerRow, LevelSummary
from slipway.tasks.contracts.spec.gate import Expectation
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import StepResult
from tests.fakes.releases import release

NAME, RUN = "demo", "two"
LIVE = release()
CANDIDATE = LIVE.model_copy(update={"id": "demo-0123456789ab"})
RIGHT = Judgement(
    expectation=Expectation(metric="error_rate", at_most=0.0),
    what="error_rate",
    verdict=Verdict.PASSED,
    observed=0.0,
    limit=0.0,
    unit="",
    count=64,
    why="error_rate is 0, at most 0 (n=64)",
)
SLOWER = Judgement(
    expectation=Expectation(metric="ttft_ms", quantile=0.95, at_most_ratio=1.1, of="live"),
    what="ttft_ms p95 at concurrency 4 / live",
    verdict=Verdict.INCONCLUSIVE,
    observed=1.08,
    limit=1.1,
    unit="x",
    count=64,
    interval=(0.97, 1.21),
    why="ttft_ms p95 at concurrency 4 / live is 1.08 x [0.97, 1.21], at most 1.1 (n=64)",
)
WRONG = Judgement(
    expectation=Expectation(metric="smoke_accuracy", at_least=1.0),
    what="smoke_accuracy",
    verdict=Verdict.FAILED,
    observed=1 / 3,
    limit=1.0,
    unit="",
    count=3,
    why="smoke_accuracy is 0.3333, at least 1 (n=3)",
)
ANSWERS = [
    AnswerRow(suite="smoke", prompt="Two and two?", expected="It is four.", answer="It is four.", ok=True),
    AnswerRow(suite="smoke", prompt="Three and three?", expected="It is six.", answer="It is ten.", ok=False),
    AnswerRow(suite="smoke", prompt="One and one?", expected="Two.", answer="", ok=False, error="timed out"),
]
SUMMARIES = [
    LevelSummary(
        target=target,
        concurrency=4,
        requests=64,
        errors=0,
        duration_s=8.0,
        error_rate=0.0,
        requests_per_s=8.0,
        output_tokens_per_s=tokens,
        goodput_per_s=8.0,
        percentiles={metric: {"p50": 0.8 * ttft, "p95": ttft} for metric in ("ttft_ms", "itl_ms", "latency_ms")},
    )
    for target, tokens, ttft in (("candidate", 410.0, 324.0), ("live", 455.0, 300.0))
]


def canary(now, **state):
    """A canary whose mirror and first step passed, at its second step; or in another state."""
    passed = CanaryLook(at=now, percent=5, verdict=Verdict.PASSED, why=("errors 0 of 900, live 0 of 17100",))
    mirrored = passed.model_copy(update={"percent": 0, "mirror": 10})
    now_at = {"percent": 25, "phase": "shifting", "looks": (mirrored, passed)} | state
    return CanaryRecord(candidate=CANDIDATE.id, live=LIVE.id, mirrors=10, steps=(5, 25, 50), **now_at)


def promoted(layout, now):
    """The channel three days before the candidate."""
    return Channel(name=NAME).promoted(
        LIVE.id, layout.release(NAME, LIVE.id), at=now - timedelta(days=3), run="one", keep=2
    )


def refused(layout, now, reason="failed: 1 of 3 expectations hold"):
    """The channel after the candidate was refused."""
    return promoted(layout, now).refused(CANDIDATE.id, at=now, run=RUN, reason=reason)


def gate(*judgements):
    """The gate's report."""
    return GateReport(
        release_id=CANDIDATE.id, live=LIVE.id, verdict=worst(each.verdict for each in judgements), judgements=judgements
    )


def results(now, run=RUN):
    """What the steps of the run reported, by step."""
    data = {
        "plan": {"release_id": CANDIDATE.id, "action": "release"},
        "gate": {"verdict": "failed"},
    }
    return {
        step: StepResult(
            step=step,
            run=run,
            outcome="done",
            summary=f"{step} is done",
            data=data[step],
            started_at=now + timedelta(minutes=minute),
            seconds=12.5,
        )
        for minute, step in enumerate(data)
    }


def documents(layout: Layout, now: datetime = datetime(2026, 1, 31, tzinfo=UTC), *, run=RUN, channel=None, **evidence):
    """Every document by its URI: `evidence` by the names of its files, by default all of it."""
    evidence = evidence or {"gate": gate(RIGHT, SLOWER, WRONG), "answers": ANSWERS, "summary": SUMMARIES}
    folder, reported = layout.evidence(NAME, CANDIDATE.id, run), results(now, run)
    return {
        layout.channel(NAME): channel or refused(layout, now),
        **{layout.release(NAME, each.id): each for each in (LIVE, CANDIDATE)},
        **{f"{folder}/{name}.json": document for name, document in evidence.items()},
        layout.plan(NAME, run): reported["plan"],
        layout.result(NAME, CANDIDATE.id, "gate"): reported["gate"],
    }
