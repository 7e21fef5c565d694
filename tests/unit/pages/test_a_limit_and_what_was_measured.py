"""The chart of an expectation: a dot lies on the shaded side of the limit exactly when its value is allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.tasks.contracts.measured.gate import Judgement, Verdict
from slipway.tasks.contracts.measured.measurement import summarize
from slipway.tasks.contracts.spec.gate import Expectation, Goodput
from slipway.tasks.pages.limit_plot import EDGE, WIDTH, beside, limit_plot
from tests.unit.evidence.test_measurement import row

VALUES = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda value: round(value, 3))
DISTANCES = VALUES.map(abs)


def judgement(expectation, observed, what="", interval=None):
    return Judgement(
        expectation=expectation,
        what=what or expectation.metric,
        verdict=Verdict.PASSED,
        observed=observed,
        limit=expectation.limit,
        unit="",
        count=3,
        interval=interval,
        why="",
    )


@given(VALUES, VALUES, st.sampled_from(["at_most", "at_least"]))
def test_the_shaded_side_is_the_allowed_one(observed, limit, bound):
    plot = limit_plot(judgement(Expectation(metric="perplexity", **{bound: limit}), observed), ())
    (dot,) = plot.dots

    inside = plot.allowed_from <= dot.x <= plot.allowed_from + plot.allowed_width + 0.1
    allowed = observed <= limit if bound == "at_most" else observed >= limit
    assert inside or not allowed
    assert not inside or allowed or abs(dot.x - plot.limit) <= 0.1  # closer than a tenth of a pixel
    assert EDGE <= dot.x <= WIDTH - EDGE


@given(VALUES, st.one_of(st.none(), DISTANCES), st.one_of(st.none(), DISTANCES))
def test_an_interval_holds_its_value_and_stays_on_the_axis(observed, below, above):
    interval = (None if below is None else observed - below, None if above is None else observed + above)
    plot = limit_plot(judgement(Expectation(metric="perplexity", at_most=10), observed, interval=interval), ())
    (dot,) = plot.dots

    assert EDGE <= dot.low <= dot.x <= dot.high <= WIDTH - EDGE


def test_a_value_below_zero_that_is_its_limit_is_on_the_axis():
    plot = limit_plot(judgement(Expectation(metric="perplexity", at_least=-2), -2.0), ())

    assert plot.dots[0].x == plot.limit == EDGE


def test_a_number_stands_beside_that_of_the_live_release_at_the_same_load():
    summaries = [summarize([row(target=target)], Goodput()) for target in ("candidate", "live")]
    level = summaries[1].level
    expectation = Expectation(metric="ttft_ms", quantile=0.95, at_most=500)

    found = beside(judgement(expectation, 100, f"ttft_ms p95 at {level}"), summaries)

    assert found == [("live", summaries[1].percentiles["ttft_ms"]["p95"])]
    assert beside(judgement(expectation, 100, "ttft_ms p95 at another load"), summaries) == []


def test_a_ratio_stands_beside_one():
    expectation = Expectation(metric="requests_per_s", at_least_ratio=0.9, of="live")

    assert beside(judgement(expectation, 0.95), ()) == [("live", 1.0)]


@pytest.mark.parametrize("of", ["", " / live"])
def test_a_judgement_of_an_older_version_names_its_level_as_today(of):
    expectation = Expectation(metric="ttft_ms", quantile=0.95, at_most=500)

    assert judgement(expectation, 1.0, f"ttft_ms p95 at 4 at once{of}").what == f"ttft_ms p95 at concurrency 4{of}"
