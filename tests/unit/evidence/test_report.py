"""The evidence page."""

from html.parser import HTMLParser

import pytest

from slipway.tasks.adapters.judge.report import charts, render
from slipway.tasks.contracts.measured.evidence import Evidence, TextLosses
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.measured.measurement import AnswerRow, summarize
from slipway.tasks.contracts.spec.gate import Expectation, Goodput
from tests.fakes.releases import release
from tests.unit.evidence.test_measurement import row


class Page(HTMLParser):
    """What a browser would fetch or run."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in {"src", "href", "xlink:href"}]

    def handle_data(self, data):
        self.text += data


def page(answers=(), more=(), texts=()):
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
    parser.feed(render(released, report, Evidence(rows, answers, Goodput(), texts=texts), summaries))
    return parser


def test_the_page_needs_nothing_from_outside_and_runs_nothing():
    found = page()

    assert found.addresses == []
    assert "script" not in found.tags
    assert found.tags.count("svg") == 2


def test_the_page_says_the_verdict_and_why():
    found = page()

    assert "failed" in found.text
    assert "smoke_accuracy is 0.5, at least 1 (n=2)" in found.text


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


def test_the_page_says_how_far_the_model_diverges_from_its_source():
    text = " ".join(page(texts=[TextLosses(10, 9.0, 9.1, 0.2), TextLosses(10, 9.0, 9.1, 0.4)]).text.split())

    assert "Divergence from the source 0.03 nats a token [" in text
    assert "Divergence" not in page().text


def test_the_page_counts_flawed_answers_and_says_what_is_wrong_with_wrong_ones():
    loop = AnswerRow(suite="quality", prompt="q", expected="a", answer="la " * 20, ok=False, finish_reason="length")
    nothing = AnswerRow(suite="quality", prompt="q", expected="a", answer="", ok=False)
    refused = AnswerRow(suite="quality", prompt="q", expected="a", answer="", ok=False, error="too long")
    cut = AnswerRow(suite="quality", prompt="q", expected="a", answer="a", ok=True, finish_reason="length")

    text = " ".join(page([loop, nothing, refused, cut]).text.split())

    assert "1 of 4 known answers correct; of all, 1 empty, 1 loops, 2 cut off." in text
    assert "la la loops, cut off" in text
    assert "of all" not in " ".join(page([cut.model_copy(update={"finish_reason": "stop"})]).text.split())


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

    assert [label for _, label in charts([summary])[0].ticks] == labels
