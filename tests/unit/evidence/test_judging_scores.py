"""Lines of the gate over scores of lm-evaluation-harness."""

import pytest

from slipway.tasks.contracts.measured.evidence import Evidence
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.measured.harness import HarnessReport, HarnessScores, Score
from slipway.tasks.contracts.measured.measurement import AnswerRow
from slipway.tasks.contracts.spec.gate import Goodput
from slipway.tasks.steps.gate import judge
from tests.fakes.releases import SPEC, release

KEY = "exact_match,strict-match"
SMOKE = AnswerRow(suite="smoke", prompt="q", expected="a", answer="a", ok=True)


def gated(live=None, **task):
    harness = {"tasks": [{"task": "gsm8k", "filter": "strict-match", **task}]}
    return release(live=live, gate={**SPEC["gate"], "harness": harness})


def scores(target, value, stderr=0.01, **changes):
    fields = {
        "task": "gsm8k",
        "target": target,
        "release_id": f"demo-{target}",
        "run": "run-1",
        "key": "a" * 64,
        "samples": 100,
        "scores": {KEY: Score(value=value, stderr=stderr)},
        "task_version": "3.0",
        "task_hash": "b" * 64,
    }
    return HarnessScores(**{**fields, **changes})


def line(released, *measured):
    """The judgement of the harness; the smoke line before it holds."""
    report = HarnessReport(lm_eval="0.4.13", image="harness:1", scores=measured) if measured else None
    evidence = Evidence(requests=(), answers=[SMOKE], goodput=Goodput(), harness=report)
    verdict, documents = judge(released, evidence)
    assert verdict.judgements[0].verdict is Verdict.PASSED
    assert verdict.verdict is verdict.judgements[-1].verdict
    assert len(documents) == len([each for each in verdict.judgements if each.observed is not None])
    return verdict.judgements[-1]


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.53, Verdict.PASSED), (0.51, Verdict.INCONCLUSIVE), (0.49, Verdict.INCONCLUSIVE), (0.47, Verdict.FAILED)],
)
def test_a_score_passes_or_fails_only_with_its_whole_interval(value, verdict):
    judged = line(gated(at_least=0.5), scores("candidate", value))

    assert judged.verdict is verdict
    assert judged.interval == pytest.approx((value - 0.0196, value + 0.0196))
    assert "gsm8k exact_match (strict-match) is" in judged.why
    assert "at least 0.5 (n=100)" in judged.why


@pytest.mark.parametrize(
    ("candidate", "verdict"),
    [(0.60, Verdict.PASSED), (0.56, Verdict.PASSED), (0.53, Verdict.INCONCLUSIVE), (0.49, Verdict.FAILED)],
)
def test_a_drop_below_live_counts_the_errors_of_both_scores(candidate, verdict):
    judged = line(gated(live="demo-live", max_drop_of_live=0.06), scores("candidate", candidate), scores("live", 0.58))

    assert judged.verdict is verdict
    assert judged.observed == pytest.approx(0.58 - candidate)
    assert judged.interval[1] - judged.interval[0] == pytest.approx(2 * 1.96 * 0.01 * 2**0.5)


def test_a_task_may_have_both_limits():
    released = gated(live="demo-live", at_least=0.5, max_drop_of_live=0.06)
    report = HarnessReport(lm_eval="1", image="i", scores=(scores("candidate", 0.9), scores("live", 0.96)))

    verdict, _ = judge(released, Evidence(requests=(), answers=[SMOKE], goodput=Goodput(), harness=report))

    assert [judged.verdict for judged in verdict.judgements[1:]] == [Verdict.PASSED, Verdict.INCONCLUSIVE]


def test_without_a_live_release_its_line_is_named_as_not_judged():
    report = HarnessReport(lm_eval="1", image="i", scores=(scores("candidate", 0.9),))
    released = gated(at_least=0.5, max_drop_of_live=0.06)

    verdict, _ = judge(released, Evidence(requests=(), answers=[SMOKE], goodput=Goodput(), harness=report))

    assert len(verdict.judgements) == 2
    assert verdict.not_applicable == ("gsm8k against live: no release is live",)


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        ((), "it was not measured"),
        ((scores("candidate", 0.9, task="other"),), "it was not measured"),
        ((scores("candidate", 0.9, samples=29), scores("live", 0.9)), "29 documents, at least 30 are needed"),
        ((scores("candidate", 0.9, None), scores("live", 0.9)), "no standard error"),
        ((scores("candidate", 0.9, scores={}), scores("live", 0.9)), "there is no score exact_match,strict-match"),
        ((scores("candidate", 0.9),), "not measured for the live release"),
        ((scores("candidate", 0.9), scores("live", 0.9, key="c" * 64)), "other documents or another lm_eval"),
    ],
)
def test_missing_or_thin_or_foreign_data_never_passes(measured, why):
    judged = line(gated(live="demo-live", max_drop_of_live=0.06), *measured)

    assert judged.verdict is Verdict.INCONCLUSIVE
    assert why in judged.why
