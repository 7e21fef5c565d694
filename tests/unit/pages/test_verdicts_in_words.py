"""Why a release was refused, as a person says it."""

from datetime import UTC, datetime

import pytest

from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.spec.gate import Expectation
from slipway.tasks.contracts.stored.channel import ChannelEvent
from slipway.tasks.pages.texts import compared, judged, why


def judgement(metric, observed, count, verdict=Verdict.FAILED, **limit):
    return Judgement(
        expectation=Expectation(metric=metric, **limit),
        what=metric,
        verdict=verdict,
        observed=observed,
        limit=next(value for value in limit.values() if isinstance(value, float)),
        unit="",
        count=count,
        why=f"{metric} is {observed}",
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (judgement("smoke_accuracy", 1 / 3, 3, at_least=1.0), "2 of 3 smoke answers wrong"),
        (judgement("answer_accuracy", 0.9, 40, at_least=0.95), "4 of 40 answers wrong"),
        (judgement("truncated_rate", 0.25, 8, at_most=0.1), "2 of 8 answers cut off"),
        (judgement("error_rate", 0.5, 64, at_most=0.0), "32 of 64 requests failed"),
        (judgement("perplexity", 12.5, 1, at_most=9.0), "perplexity 12.5, at most 9 allowed"),
        (judgement("smoke_accuracy", None, 0, Verdict.INCONCLUSIVE, at_least=1.0), "smoke_accuracy is None"),
    ],
)
def test_a_share_is_said_as_a_count(line, words):
    assert judged(line) == words


def test_a_level_and_a_number_do_not_run_together():
    line = judgement("cost_per_million_tokens", 3.1, 8, at_most=2.5)
    line = line.model_copy(update={"what": "cost_per_million_tokens at concurrency 8", "unit": "EUR"})

    assert compared(line) == "cost per million tokens at concurrency 8: 3.1 EUR, at most 2.5 allowed"


def event(kind, reason=""):
    return ChannelEvent(event=kind, release_id="demo-0123456789ab", at=datetime.now(UTC), run="run", reason=reason)


def test_a_refusal_says_its_worst_line_and_how_many_more_there_are():
    lines = (
        judgement("perplexity", None, 0, Verdict.INCONCLUSIVE, at_most=9.0),
        judgement("error_rate", 0.0, 64, Verdict.PASSED, at_most=0.0),
        judgement("smoke_accuracy", 1 / 3, 3, at_least=1.0),
    )
    report = GateReport(release_id="demo-0123456789ab", live=None, verdict=Verdict.FAILED, judgements=lines)

    assert why(event("refused"), report) == "refused: 2 of 3 smoke answers wrong, and 1 more"


def test_without_a_report_it_says_the_reason_in_the_channel():
    assert why(event("refused", "build: out of memory"), None) == "refused: build: out of memory"
    assert why(event("promoted"), None) == "promoted"
