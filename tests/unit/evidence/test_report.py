"""The evidence page."""

import re
from html.parser import HTMLParser

import pytest

from slipway.tasks.contracts.measured.evidence import Evidence
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.measured.measurement import AnswerRow, summarize
from slipway.tasks.contracts.spec.gate import Expectation, Goodput
from slipway.tasks.pages.load_charts import load_charts
from slipway.tasks.pages.report import report_page
from slipway.tasks.pages.timeline import point
from tests.fakes.releases import release
from tests.unit.evidence.test_measurement import row

HUB = "https://hub.example"


class Page(HTMLParser):
    """What a browser would fetch or run."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "a":  # a link waits for a person
            self.addresses += [value for name, value in attrs if name in {"src", "href", "xlink:href"}]

    def handle_data(self, data):
        self.text += data


def page(answers=(), more=(), quality=()):
    released = release(live="demo-old")
    line = Judgement(
        expectation=Expectation(metric="smoke_accuracy", at_least=1),
        what="smoke_accuracy",
        verdict=Verdict.FAILED,
        observed=0.5,
        limit=1,
        unit="",
        count=2,
        why="smoke_accuracy is 0.5, at least 1 (n=2)",
    )
    report = GateReport(release_id=released.id, live="demo-old", verdict=Verdict.FAILED, judgements=(line, *more))
    rows = [row(), row(target="live", last=0.9)]
    summaries = [summarize([one], Goodput()) for one in rows]
    parser = Page()
    parser.feed(report_page(released, report, Evidence(rows, answers, Goodput()), summaries, quality=quality, hub=HUB))
    return parser


def test_the_page_needs_nothing_from_outside_and_runs_nothing():
    found = page()

    assert found.addresses == []
    assert "script" not in found.tags
    assert "svg" in found.tags


def test_the_first_line_says_why_it_was_refused_with_number_and_limit():
    text = " ".join(page().text.split())

    assert "refused: 1 of 2 smoke answers wrong: smoke accuracy 0.5, at least 1 needed" in text


def test_every_chart_draws_the_limits_of_its_metric():
    live, slow = (summarize([row(target=target)], Goodput()) for target in ("live", "candidate"))
    level = live.level
    absolute = Expectation(metric="ttft_ms", quantile=0.95, at_most=250)
    ratio = Expectation(metric="output_tokens_per_s", at_least_ratio=0.5, of="live")
    lines = [judged(absolute, f"ttft_ms p95 at {level}"), judged(ratio, f"output_tokens_per_s at {level} / live")]

    tokens, ttft = load_charts([live, slow], lines)

    (half,), (most,) = tokens.limits, ttft.limits
    assert half.label.endswith(f"at least {0.5 * live.output_tokens_per_s:.4g} tokens/s")
    assert most.label.endswith("p95 at most 250 ms")
    height = tokens.bottom - half.y
    assert height == pytest.approx((tokens.bottom - dict(tokens.series)["live"][0].y) / 2, abs=0.2)


def judged(expectation, what, observed=1.0):
    return Judgement(
        expectation=expectation,
        what=what,
        verdict=Verdict.PASSED,
        observed=observed,
        limit=expectation.limit,
        unit="",
        count=1,
        why="",
    )


def test_the_candidate_stands_beside_earlier_releases():
    summary = summarize([row()], Goodput())
    points = [point((f"demo-{name}", name), None, [summary]) for name in ("first", "second")]
    released = release(live="demo-old")
    report = GateReport(release_id=released.id, live="demo-old", verdict=Verdict.INCONCLUSIVE, judgements=())

    text = report_page(released, report, Evidence([], (), Goodput()), [summary], past=points)

    (label,) = re.findall(r'aria-label="Output at concurrency[^"]*"', text)
    assert [name in label for name in ("demo-first", "demo-second", released.id)] == [True] * 3


def test_the_page_says_the_error_rate_of_the_gate_as_a_whole():
    compared = Judgement(
        expectation=Expectation(metric="requests_per_s", at_least_ratio=0.9, of="live"),
        what="requests_per_s",
        verdict=Verdict.PASSED,
        observed=1.0,
        limit=0.9,
        unit="x",
        count=64,
        interval=(0.95, 1.05),
        why="",
    )

    text = " ".join(page(more=[compared] * 16).text.split())

    assert "16 of 17 lines are judged by an interval" in text
    assert "passes this gate in at most 2.5 % of cases" in text
    assert "fails it in at most 40 %" in text
    assert "judged by an interval" not in page().text


def test_the_page_says_what_quantize_measured_of_the_model():
    assert "Perplexity 3.2, unquantized source 3.1." in page(quality=["Perplexity 3.2, unquantized source 3.1."]).text


def test_the_page_counts_flawed_answers_and_says_what_is_wrong_with_wrong_ones():
    loop = AnswerRow(suite="quality", prompt="q", expected="a", answer="la " * 20, ok=False, finish_reason="length")
    nothing = AnswerRow(suite="quality", prompt="q", expected="a", answer="", ok=False)
    refused = AnswerRow(suite="quality", prompt="q", expected="a", answer="", ok=False, error="too long")
    cut = AnswerRow(suite="quality", prompt="q", expected="a", answer="a", ok=True, finish_reason="length")

    text = " ".join(page([loop, nothing, refused, cut]).text.split())

    assert "3 of 4 answers wrong" in text
    assert "Of all answers: 1 loops, 2 cut off, 1 empty." in text
    assert "given (loops, cut off)" in text
    assert "Of all answers" not in " ".join(page([cut.model_copy(update={"finish_reason": "stop"})]).text.split())


def test_an_answer_cannot_become_markup():
    hostile = "<script>alert(1)</script>"
    found = page([AnswerRow(suite="smoke", prompt="q", expected="a", answer=hostile, ok=False)])

    assert "script" not in found.tags
    assert hostile in found.text


@pytest.mark.parametrize(
    ("highest", "labels"), [(1020, ["0", "500", "1000", "1500"]), (83, ["0", "50", "100"]), (0, ["0", "1"])]
)
def test_an_axis_counts_in_round_numbers_and_reaches_over_the_highest_value(highest, labels):
    summary = summarize([row()], Goodput()).model_copy(update={"output_tokens_per_s": highest})

    assert [label for _, label in load_charts([summary])[0].ticks] == labels
