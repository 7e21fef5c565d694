"""The gate's verdicts, with the real Great Expectations and scipy."""

import numpy as np
import pytest

from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.measured.evidence import Evidence, TextLosses
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.measured.measurement import AnswerRow, RequestRow
from slipway.tasks.contracts.spec.gate import Goodput
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.steps.gate import judge
from tests.fakes.releases import SPEC, release

QUALITY = {"dataset": "hf://datasets/a/b@main/q.jsonl", "perplexity": "hf://datasets/a/b@main/p.jsonl"}


def gated(*expect, live=None):
    gate = {**SPEC["gate"], "quality": QUALITY, "benchmark": {"concurrency": [1]}, "expect": list(expect)}
    return release(live=live, gate=gate)


def requests(target, latencies_ms, ok=True):
    rows, now = [], 0.0
    for latency in latencies_ms:
        rows.append(
            RequestRow(
                target=target,
                concurrency=1,
                batch=0,
                prompt="p",
                ok=ok,
                start_s=now,
                first_token_s=now + latency / 2e3,
                last_token_s=now + latency / 1e3,
                output_tokens=10,
            )
        )
        now += latency / 1e3
    return rows


def evidence(rows=(), answers=(), **numbers):
    return Evidence(requests=rows, answers=answers, goodput=Goodput(), **numbers)


def answers(right, wrong):
    outcomes = [True] * right + [False] * wrong
    return [AnswerRow(suite="quality", prompt="q", expected="a", answer="a", ok=ok) for ok in outcomes]


def verdict_of(released, found):
    report, _ = judge(released, found)
    return report.verdict


@pytest.mark.parametrize(("limit", "expected"), [(110, Verdict.PASSED), (90, Verdict.FAILED)], ids=["within", "beyond"])
def test_a_quantile_is_judged_against_its_limit(limit, expected):
    released = gated({"metric": "latency_ms", "quantile": 0.5, "at_most": limit})

    assert verdict_of(released, evidence(requests("candidate", [80, 100, 100, 120]))) is expected


@pytest.mark.parametrize(("right", "wrong", "expected"), [(19, 1, Verdict.PASSED), (10, 10, Verdict.FAILED)])
def test_accuracy_is_judged_over_the_quality_questions(right, wrong, expected):
    released = gated({"metric": "answer_accuracy", "at_least": 0.9})

    assert verdict_of(released, evidence(answers=answers(right, wrong))) is expected


def quality(answer, finish_reason="", error=""):
    return AnswerRow(
        suite="quality", prompt="q", expected="a", answer=answer, ok=False, finish_reason=finish_reason, error=error
    )


@pytest.mark.parametrize(
    ("metric", "rows", "observed", "count"),
    [
        ("empty_rate", [quality(""), quality("a"), quality("b"), quality("c")], 0.25, 4),
        ("repetition_rate", [quality("the " * 20), quality("a")], 0.5, 2),
        ("truncated_rate", [quality("a", "length"), quality("b", "stop"), quality("c", "stop")], 1 / 3, 3),
        ("truncated_rate", [quality("a", "length"), quality("b")], 1.0, 1),
        ("empty_rate", [quality("", error="refused"), quality("a")], 0.0, 1),
    ],
    ids=["empty", "loops", "cut-off", "one-that-does-not-say", "refused"],
)
def test_flawed_answers_are_counted_among_those_that_can_be(metric, rows, observed, count):
    smoke = AnswerRow(suite="smoke", prompt="q", expected="a", answer="", ok=False, finish_reason="length")

    report, _ = judge(gated({"metric": metric, "at_most": 0.4}), evidence(answers=[*rows, smoke]))
    (line,) = report.judgements

    assert (line.observed, line.count) == (pytest.approx(observed), count)
    assert line.verdict is (Verdict.PASSED if observed <= 0.4 else Verdict.FAILED)


@pytest.mark.parametrize(
    ("metric", "row"), [("truncated_rate", quality("a")), ("empty_rate", quality("", error="refused"))]
)
def test_a_rate_that_no_answer_tells_is_inconclusive(metric, row):
    assert verdict_of(gated({"metric": metric, "at_most": 1}), evidence(answers=[row])) is Verdict.INCONCLUSIVE


def test_the_log_of_a_gate_names_no_folders_of_great_expectations(caplog):
    caplog.set_level("INFO")

    verdict_of(gated({"metric": "answer_accuracy", "at_least": 0.9}), evidence(answers=answers(19, 1)))

    assert "temporary directory" not in caplog.text


def test_without_any_request_a_load_expectation_is_inconclusive():
    released = gated({"metric": "ttft_ms", "quantile": 0.95, "at_most": 1000})

    assert verdict_of(released, evidence()) is Verdict.INCONCLUSIVE


def test_requests_that_all_failed_leave_no_data_to_pass_on():
    released = gated({"metric": "ttft_ms", "quantile": 0.95, "at_most": 1000})

    assert verdict_of(released, evidence(requests("candidate", [10, 10], ok=False))) is Verdict.INCONCLUSIVE


def test_fewer_samples_than_asked_are_inconclusive():
    released = gated({"metric": "ttft_ms", "quantile": 0.95, "at_most": 1000, "min_count": 30})

    assert verdict_of(released, evidence(requests("candidate", [10] * 29))) is Verdict.INCONCLUSIVE


def test_a_perplexity_that_is_not_a_number_is_inconclusive():
    released = gated({"metric": "perplexity", "at_most": 10})

    assert verdict_of(released, evidence(perplexity=float("nan"))) is Verdict.INCONCLUSIVE


def test_the_worst_line_is_the_verdict():
    released = gated({"metric": "perplexity", "at_most": 10}, {"metric": "answer_accuracy", "at_least": 0.9})

    assert verdict_of(released, evidence(answers=answers(1, 1), perplexity=2.0)) is Verdict.FAILED


@pytest.mark.parametrize(("perplexity", "expected"), [(2.05, Verdict.PASSED), (2.5, Verdict.FAILED)])
def test_quantized_perplexity_is_compared_with_the_source(perplexity, expected):
    released = gated({"metric": "perplexity", "at_most_ratio": 1.1, "of": "source"})

    assert verdict_of(released, evidence(perplexity=perplexity, source_perplexity=2.0)) is expected


SLOWER = {"metric": "latency_ms", "quantile": 0.5, "at_most_ratio": 1.2, "of": "live"}
FASTER = {"metric": "output_tokens_per_s", "at_least_ratio": 0.8, "of": "live"}


@pytest.mark.parametrize("line", [SLOWER, FASTER], ids=["quantile", "rate"])
@pytest.mark.parametrize(
    ("latency_ms", "expected"),
    [(100, Verdict.PASSED), (200, Verdict.FAILED), (123, Verdict.INCONCLUSIVE)],
    ids=["as-fast", "twice-as-slow", "at-the-limit"],
)
def test_a_ratio_to_the_live_release_passes_or_fails_only_beyond_its_interval(line, latency_ms, expected):
    spread = [-15, -10, -5, 0, 5, 10, 15] * 9
    orders = [np.random.default_rng(seed).permutation(spread).tolist() for seed in (1, 2)]
    candidate, live = ([middle + s for s in each] for middle, each in zip((latency_ms, 100), orders, strict=True))
    rows = requests("candidate", candidate) + requests("live", live)

    assert verdict_of(gated(line, live="demo-1"), evidence(rows)) is expected


def test_a_live_release_that_could_not_be_measured_is_inconclusive():
    assert verdict_of(gated(SLOWER, live="demo-1"), evidence(requests("candidate", [100] * 9))) is Verdict.INCONCLUSIVE


GOODPUT = {"metric": "goodput_per_s", "at_least_ratio": 1.0, "of": "live"}
GAPS = {"metric": "itl_ms", "quantile": 0.5, "at_most_ratio": 1.2, "of": "live"}


def test_a_ratio_whose_far_end_nothing_bounds_is_still_judged_and_written():
    live = requests("live", [100] * 3) + requests("live", [100] * 61, ok=False)

    report, _ = judge(gated(GOODPUT, live="demo-1"), evidence(requests("candidate", [100] * 64) + live))

    assert report.verdict is Verdict.PASSED
    low, high = report.judgements[0].interval
    assert low > 1
    assert high is None
    assert "∞]" in report.judgements[0].why
    canonical_json(report.model_dump(mode="json"))


def test_a_ratio_to_a_live_value_of_0_is_inconclusive():
    at_once = [row.model_copy(update={"first_token_s": row.last_token_s}) for row in requests("live", [100] * 9)]
    rows = requests("candidate", [100] * 9) + at_once[:8] + requests("live", [100])

    assert verdict_of(gated(GAPS, live="demo-1"), evidence(rows)) is Verdict.INCONCLUSIVE


def test_a_candidate_of_which_no_request_ended_is_inconclusive():
    rows = [row.model_copy(update={"last_token_s": None}) for row in requests("candidate", [100] * 9, ok=False)]

    assert (
        verdict_of(gated(FASTER, live="demo-1"), evidence(rows + requests("live", [100] * 9))) is Verdict.INCONCLUSIVE
    )


def test_without_a_live_release_a_comparison_with_it_is_named_and_not_judged():
    released = gated(SLOWER, {"metric": "latency_ms", "quantile": 0.5, "at_most": 1000})

    report, _ = judge(released, evidence(requests("candidate", [100] * 9)))

    assert report.verdict is Verdict.PASSED
    assert report.not_applicable == ("latency_ms against live: no release is live",)


def test_a_spec_of_comparisons_only_does_not_pass_without_a_live_release():
    assert verdict_of(gated(SLOWER), evidence(requests("candidate", [100] * 9))) is Verdict.INCONCLUSIVE


def busy(line, latency_ms, share):
    rows = requests("candidate", [latency_ms] * 40) + requests("live", [100] * 40)
    return judge(gated(line, live="demo-1"), evidence(rows, client_busy={LoadLevel(1): share}))[0].judgements[0]


@pytest.mark.parametrize("latency_ms", [100, 500], ids=["passed", "failed"])
def test_a_comparison_that_the_load_generator_limited_is_inconclusive(latency_ms):
    trusted, limited = (busy(SLOWER, latency_ms, share) for share in (0.7, 0.9))

    assert trusted.verdict is not Verdict.INCONCLUSIVE
    assert limited.verdict is Verdict.INCONCLUSIVE
    assert "the load generator computed for 90% of the time" in limited.why


@pytest.mark.parametrize(("latency_ms", "expected"), [(100, Verdict.PASSED), (500, Verdict.INCONCLUSIVE)])
def test_an_absolute_limit_that_was_met_although_the_load_generator_was_busy_is_met(latency_ms, expected):
    line = {"metric": "latency_ms", "quantile": 0.5, "at_most": 200}

    assert busy(line, latency_ms, 0.9).verdict is expected


@pytest.mark.parametrize(
    ("metric", "expected"), [("latency_ms", Verdict.INCONCLUSIVE), ("requests_per_s", Verdict.FAILED)]
)
def test_times_of_more_chunks_than_the_load_generator_can_stamp_are_inconclusive(metric, expected):
    rows = requests("candidate", [500] * 40) + requests("live", [100] * 40)
    limit = {"quantile": 0.5, "at_most_ratio": 1.1} if metric == "latency_ms" else {"at_least_ratio": 0.9}
    released = gated({"metric": metric, **limit, "of": "live"}, live="demo-1")

    verdicts = [
        judge(released, evidence(rows, client_chunks={LoadLevel(1): share}))[0].judgements[0] for share in (0.9, 1.1)
    ]

    assert [each.verdict for each in verdicts] == [Verdict.FAILED, expected]
    assert ("110% of the chunks that the load generator can stamp" in verdicts[1].why) is (metric == "latency_ms")


def test_errors_are_the_servers_however_busy_the_load_generator_is():
    rows = requests("candidate", [100] * 9, ok=False)
    report, _ = judge(gated({"metric": "error_rate", "at_most": 0}), evidence(rows, client_busy={LoadLevel(1): 1.0}))

    assert report.verdict is Verdict.FAILED


def at_a_rate(line, late_s, ttft_s=0.1):
    """The judgement of a line after requests at 10 a second that were sent so late and answered so soon after it."""
    rows = [
        RequestRow(
            target=target,
            request_rate=10,
            batch=batch,
            prompt="p",
            ok=True,
            due_s=number / 10,
            start_s=number / 10 + late_s[target],
            first_token_s=number / 10 + late_s[target] + ttft_s,
            last_token_s=number / 10 + late_s[target] + ttft_s,
            output_tokens=1,
        )
        for batch, target in enumerate(("candidate", "live"))
        for number in range(40)
    ]
    gate = {**SPEC["gate"], "benchmark": {"concurrency": [], "request_rate": [10]}, "expect": [line]}
    return judge(release(live="demo-1", gate=gate), evidence(rows))[0].judgements[0]


@pytest.mark.parametrize("target", ["candidate", "live"])
def test_a_comparison_of_requests_that_were_sent_late_is_inconclusive(target):
    slower = {**SLOWER, "at_most_ratio": 2.0}
    punctual, late = (at_a_rate(slower, {"candidate": 0.0, "live": 0.0, target: each}) for each in (0.005, 0.02))

    assert punctual.verdict is Verdict.PASSED
    assert late.verdict is Verdict.INCONCLUSIVE
    assert "17% of the time to first token passed before the load generator sent the request" in late.why


def test_the_time_that_a_request_was_late_is_part_of_its_latency():
    line = {"metric": "ttft_ms", "quantile": 0.5, "at_most": 119, "request_rate": 10}

    assert at_a_rate(line, {"candidate": 0.0, "live": 0.0}).observed == pytest.approx(100)
    assert at_a_rate(line, {"candidate": 0.02, "live": 0.0}).observed == pytest.approx(120)


@pytest.mark.parametrize(
    ("metric", "observed"), [("requests_per_s", 1.0), ("output_tokens_per_s", 1.0), ("goodput_per_s", 1.0)]
)
def test_rates_of_an_open_loop_are_compared(metric, observed):
    judged = at_a_rate({"metric": metric, "at_least_ratio": 0.9, "of": "live"}, {"candidate": 0.0, "live": 0.0})

    assert (judged.verdict, judged.observed) == (Verdict.PASSED, pytest.approx(observed))
    assert judged.what == f"{metric} at 10 requests/s / live"


def texts(quantized, divergence=0.01, spread=0.2, count=40):
    """Texts of 10 tokens whose losses a token vary around `quantized` for one model and 1.0 for its source."""
    hard = np.random.default_rng(3).normal(0, spread, count)
    noise = np.random.default_rng(4).normal(0, 0.01, count)
    return [
        TextLosses(10, 10 * (1 + h), 10 * (quantized + h + n), 10 * (divergence + abs(n)))
        for h, n in zip(hard, noise, strict=True)
    ]


def of_texts(line, *args, **kwargs):
    rows = texts(*args, **kwargs)
    perplexities = [float(np.exp(sum(row[column] for row in rows) / (10 * len(rows)))) for column in (2, 1)]
    found = evidence(texts=rows, perplexity=perplexities[0], source_perplexity=perplexities[1])
    return judge(gated(line), found)[0].judgements[0]


OF_SOURCE = {"metric": "perplexity", "at_most_ratio": 1.05, "of": "source"}


@pytest.mark.parametrize(
    ("loss", "expected"), [(1.0, Verdict.PASSED), (1.2, Verdict.FAILED), (1.049, Verdict.INCONCLUSIVE)]
)
def test_perplexity_is_compared_with_the_source_text_by_text(loss, expected):
    judged = of_texts(OF_SOURCE, loss)

    assert (judged.verdict, judged.count) == (expected, 40)
    assert judged.interval[1] / judged.interval[0] < 1.02  # texts differ by 20 %, and both models read the same ones


def test_an_absolute_limit_on_perplexity_is_one_on_these_texts_and_has_no_interval():
    judged = of_texts({"metric": "perplexity", "at_most": 2.75}, 1.0)

    assert (judged.verdict, judged.interval) == (Verdict.PASSED, None)


@pytest.mark.parametrize(("limit", "expected"), [(0.1, Verdict.PASSED), (0.005, Verdict.FAILED)])
def test_divergence_from_the_source_is_judged_by_its_interval(limit, expected):
    judged = of_texts({"metric": "kl_divergence", "at_most": limit}, 1.0)

    assert judged.verdict is expected
    assert "nats" in judged.why


def test_without_texts_there_is_no_divergence():
    assert verdict_of(gated({"metric": "kl_divergence", "at_most": 1}), evidence(perplexity=2.0)) is (
        Verdict.INCONCLUSIVE
    )


def test_one_text_is_too_few():
    assert of_texts({"metric": "kl_divergence", "at_most": 1}, 1.0, count=1).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ({LoadLevel(concurrency=1): 1.5}, Verdict.PASSED),
        ({LoadLevel(concurrency=1): 2.5}, Verdict.FAILED),
        ({}, Verdict.INCONCLUSIVE),
    ],
    ids=["within", "beyond", "without a price"],
)
def test_the_cost_of_tokens_is_judged_at_each_level(costs, expected):
    released = gated({"metric": "cost_per_million_tokens", "at_most": 2})

    assert verdict_of(released, evidence(requests("candidate", [100] * 4), token_costs=costs)) is expected


@pytest.mark.parametrize(("cost", "expected"), [(1.5, Verdict.PASSED), (2.5, Verdict.INCONCLUSIVE)])
def test_a_cost_that_a_busy_load_generator_measured_is_no_reason_to_refuse(cost, expected):
    level = LoadLevel(concurrency=1)
    found = evidence(requests("candidate", [100] * 4), token_costs={level: cost}, client_busy={level: 0.95})

    assert verdict_of(gated({"metric": "cost_per_million_tokens", "at_most": 2}), found) is expected


def test_a_cost_is_said_with_its_currency():
    found = evidence(requests("candidate", [100]), token_costs={LoadLevel(concurrency=1): 2.5}, currency="EUR")
    report, _ = judge(gated({"metric": "cost_per_million_tokens", "at_most": 2}), found)

    assert report.judgements[0].why == "cost_per_million_tokens at concurrency 1 is 2.5 EUR, at most 2 EUR (n=1)"
