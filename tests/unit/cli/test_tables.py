"""Channels and gates as a person reads them."""

import io
from datetime import UTC, datetime, timedelta

from rich.console import Console

from slipway.cli.runs.tables import channel_lines, gate_table
from slipway.tasks.contracts.measured.gate import GateReport, Judgement, Verdict
from slipway.tasks.contracts.spec.gate import Expectation
from slipway.tasks.contracts.stored.channel import Channel

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def promoted(channel, release_id, hour):
    at = NOON + timedelta(hours=hour)
    return channel.promoted(release_id, f"s3://b/{release_id}", at=at, run=f"run-{hour}", keep=2)


def test_a_channel_names_live_previous_and_the_newest_changes():
    channel = promoted(promoted(Channel(name="demo"), "demo-one", 0), "demo-two", 1)
    channel = channel.refused("demo-bad", at=NOON + timedelta(hours=2), run="run-2", reason="wrong answers")

    lines = channel_lines(channel)

    assert lines[:2] == ["live      demo-two since 2026-01-02 13:00:00 UTC", "previous  demo-one"]
    assert lines[2].split(maxsplit=4)[-1] == "refused     demo-bad: wrong answers"


def test_a_channel_shows_five_changes_at_most():
    channel = Channel(name="demo")
    for hour in range(8):
        channel = promoted(channel, f"demo-{hour}", hour)

    history = [line for line in channel_lines(channel) if line.startswith("history")]

    assert [line.split()[-1] for line in history] == [f"demo-{hour}" for hour in (7, 6, 5, 4, 3)]


def test_a_channel_without_a_release_says_that_nothing_is_live():
    assert channel_lines(Channel(name="demo")) == ["live      nothing"]


def printed(report):
    console = Console(width=140, file=io.StringIO())
    console.print(gate_table(report))
    return console.file.getvalue()


def judged(verdict=Verdict.PASSED, **changes):
    values = {
        "expectation": Expectation(metric="latency_ms", quantile=0.95, at_most=500),
        "what": "latency_ms p95 at concurrency 4",
        "verdict": verdict,
        "observed": 123.456,
        "limit": 500,
        "unit": "ms",
        "count": 64,
        "why": "",
    }
    return Judgement(**{**values, **changes})


def report(*judgements, **changes):
    return GateReport(release_id="demo-1", live=None, verdict=Verdict.PASSED, judgements=judgements, **changes)


def test_an_expectation_is_shown_with_observation_limit_and_samples():
    cells = printed(report(judged())).split("\n")

    row = next(line for line in cells if "latency_ms p95 at concurrency 4" in line)
    assert [cell.strip() for cell in row.strip("│ ").split("│")][1:] == ["123.5 ms", "≤ 500 ms", "64", "passed"]


def test_a_ratio_is_shown_with_its_interval():
    ratio = Expectation(metric="output_tokens_per_s", at_least_ratio=0.5, of="live")

    text = printed(report(judged(expectation=ratio, observed=0.97, interval=(0.9, 1.04), limit=0.5, unit="x")))

    assert "0.97 x [0.9, 1.04]" in text
    assert "≥ 0.5 x" in text


def test_an_end_that_nothing_bounds_is_shown_as_infinite():
    assert "3 x [1.2, ∞]" in printed(report(judged(observed=3.0, interval=(1.2, None), limit=1.0, unit="x")))


def test_no_data_is_shown_as_such_and_not_as_a_number():
    assert "no data" in printed(report(judged(Verdict.INCONCLUSIVE, observed=None, count=0)))


def test_what_was_not_judged_is_named():
    text = printed(report(judged(), not_applicable=("output_tokens_per_s against live: no release is live",)))

    assert "output_tokens_per_s against live: no release is live" in text
