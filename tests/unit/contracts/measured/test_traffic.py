"""Two releases compared by what Triton counted of their requests."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.measured.traffic import Served, Side, grown, judge, read_front_page, read_page, verdict_of
from slipway.tasks.contracts.spec.rollout import CanaryLimits

PAGE = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="demo",version="1"} 40
nv_inference_request_success{model="demo_whole_answer",version="1"} 7
nv_inference_request_failure{model="demo",reason="REJECTED",version="1"} 1
nv_inference_request_failure{model="demo",reason="BACKEND",version="1"} 2
nv_inference_request_duration_us{model="demo",version="1"} 8000000
nv_inference_queue_duration_us{model="demo",version="1"} 4e5
nv_inference_first_response_histogram_ms_count{model="demo",version="1"} 40
nv_inference_first_response_histogram_ms_sum{model="demo",version="1"} 1200
nv_inference_first_response_histogram_ms_bucket{model="demo",version="1",le="100"} 40
"""
GOOD = Served(succeeded=100, failed=0, timed=100, request_s=10, queue_s=1, first_responses=100, first_response_s=2)
LIMITS = CanaryLimits(min_requests=20, extra_errors=0.01, slowdown=1.5)


def changed(**more):
    return Served(**{**GOOD.__dict__, **more})


def test_a_page_is_read_for_one_model_over_all_reasons():
    assert read_page(PAGE, "demo") == Served(40, 3, 40, 8.0, 0.4, 40, 1.2)


def test_vllms_time_to_first_token_counts_as_the_first_response():
    page = (
        'vllm:time_to_first_token_seconds_count{model="demo"} 4\nvllm:time_to_first_token_seconds_sum{model="demo"} 2.5'
    )

    assert read_page(page, "demo") == Served(first_responses=4, first_response_s=2.5)


@pytest.mark.parametrize("name", ["", "nv_inference_request_success"])
def test_another_models_page_counts_nothing(name):
    assert read_page(f'{name}{{model="other"}} 3', "demo") == Served()


def test_a_pod_that_is_new_or_started_again_counts_from_zero():
    before = {"kept": GOOD, "restarted": GOOD}
    after = {"kept": changed(succeeded=110), "restarted": Served(succeeded=3), "new": Served(succeeded=5)}

    assert grown(before, after).succeeded == 10 + 3 + 5


@pytest.mark.parametrize(
    ("candidate", "verdict", "why"),
    [
        (GOOD, Verdict.PASSED, ""),
        (changed(succeeded=10), Verdict.INCONCLUSIVE, "too few requests: 10 requests"),
        (changed(failed=2), Verdict.FAILED, "1.96% of 102 requests failed"),
        (changed(request_s=16), Verdict.FAILED, "request 160 ms, live 100 ms, 1.60 x"),
        (changed(queue_s=3), Verdict.FAILED, "queue 30 ms"),
        (changed(first_response_s=4), Verdict.FAILED, "first response 40 ms"),
        (changed(first_responses=0, first_response_s=0), Verdict.PASSED, ""),
        (changed(request_s=math.nan), Verdict.INCONCLUSIVE, "not finite"),
    ],
)
def test_a_candidate_by_what_was_counted(candidate, verdict, why):
    findings = judge(Side(candidate), Side(GOOD), LIMITS)

    assert verdict_of(findings) is verdict
    assert not why or any(why in one.why for one in findings if one.verdict is verdict)


def test_a_queue_of_microseconds_is_no_queue():
    live, candidate = changed(queue_s=0.002), changed(queue_s=0.006)

    assert verdict_of(judge(Side(candidate), Side(live), LIMITS)) is Verdict.PASSED


@pytest.mark.parametrize(("waited_s", "verdict"), [(0.2, Verdict.PASSED), (0.5, Verdict.FAILED)])
def test_one_answer_that_had_to_wait_makes_no_slow_candidate_of_a_fast_one(waited_s, verdict):
    few = Served(succeeded=38, timed=38, request_s=38 * 0.0015)
    fast = Side(few, (), few)
    waited = Side(few, (), Served(succeeded=38, timed=38, request_s=few.request_s + waited_s))

    findings = judge(waited, fast, LIMITS)

    assert verdict_of(findings) is verdict
    assert "(limit 1.5 x and 10 ms more; 38 requests, live 38)" in findings[-1].why


def test_errors_of_clients_that_the_live_release_has_too_are_not_the_candidates():
    assert verdict_of(judge(Side(changed(failed=5)), Side(changed(failed=5)), LIMITS)) is Verdict.PASSED


def test_a_slow_probe_fails_where_the_engine_counts_no_times():
    counted = Served(succeeded=100)

    slow = judge(Side(counted, (0.2, 0.3, 0.2)), Side(counted, (0.1, 0.1, 0.1)), LIMITS)

    assert verdict_of(slow) is Verdict.FAILED


FRONT = """\
envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="http"} 90
envoy_http_downstream_rq_xx{envoy_response_code_class="4",envoy_http_conn_manager_prefix="http"} 3
envoy_http_downstream_rq_xx{envoy_response_code_class="5",envoy_http_conn_manager_prefix="grpc"} 2
envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="stats"} 50
envoy_http_downstream_rq_time_sum{envoy_http_conn_manager_prefix="http"} 9000
envoy_http_downstream_rq_time_count{envoy_http_conn_manager_prefix="http"} 80
"""


def test_the_front_counts_answers_of_both_protocols_and_not_its_own_page():
    assert read_front_page(FRONT) == Served(90, 5, 80, 9.0)


@pytest.mark.parametrize(
    ("answered", "why"),
    [
        (Served(90, 10, 100, 10), "10.00% of 100 answers failed"),
        (Served(100, 0, 100, 20), "answer 200 ms, live 100 ms, 2.00 x"),
    ],
)
def test_what_triton_does_not_count_is_noticed_at_the_front(answered, why):
    live = Side(GOOD, (), Served(100, 0, 100, 10))

    failed = [one.why for one in judge(Side(GOOD, (), answered), live, LIMITS) if one.verdict is Verdict.FAILED]
    assert len(failed) == 1
    assert failed[0].startswith(why)


ASKED = (0.25, 0.3, 0.25)


def test_a_moment_of_an_answer_fails_nothing_by_itself():
    mine, theirs = changed(request_s=4.5), changed(request_s=1.5)
    answered = Served(100, 0, 100, 30), Served(100, 0, 100, 20)

    seen = Side(mine, ASKED, answered[0]), Side(theirs, ASKED, answered[1])
    assert verdict_of(judge(*seen, LIMITS)) is Verdict.PASSED
    assert verdict_of(judge(Side(mine, ASKED), Side(theirs, ASKED), LIMITS)) is Verdict.FAILED


def test_triton_that_takes_a_few_milliseconds_longer_fails_nothing():
    answers, probes_s = Served(100, 0, 100, 0.15), (0.0015,) * 3

    seen = [Side(Served(100, 0, 100, request_s), probes_s, answers) for request_s in (0.5, 0.1)]
    assert verdict_of(judge(*seen, LIMITS)) is Verdict.PASSED


def test_an_answer_that_triton_alone_takes_too_long_for_fails_although_few_streams_have_ended():
    ended = Served(1, 0, 1, 60)

    [failed] = [
        one.why
        for one in judge(Side(changed(request_s=30), ASKED, ended), Side(GOOD, ASKED, ended), LIMITS)
        if one.verdict is Verdict.FAILED
    ]
    assert failed.startswith("request 300 ms, live 100 ms, 3.00 x")


def test_looks_of_the_kubelet_make_no_answer_faster():
    live = Side(GOOD, (), Served(400, 0, 400, 10))

    [failed] = [
        one.why
        for one in judge(Side(GOOD, (), Served(1000, 0, 1000, 20)), live, LIMITS)
        if one.verdict is Verdict.FAILED
    ]
    assert failed.startswith("answer 200 ms, live 100 ms, 2.00 x")


def test_looks_of_the_kubelet_make_failures_no_rarer():
    live = Side(GOOD, (), Served(700, 0, 700, 10))

    [failed] = [
        one.why for one in judge(Side(GOOD, (), Served(695, 5, 700, 10)), live, LIMITS) if one.verdict is Verdict.FAILED
    ]
    assert failed.startswith("5.00% of 100 answers failed, live 0.00% of 100")


def test_probes_alone_are_no_traffic():
    probed = Side(Served(succeeded=40), (0.1,) * 40)

    [finding] = judge(probed, Side(GOOD), LIMITS)
    assert (finding.verdict, finding.why[:28]) == (Verdict.INCONCLUSIVE, "too few requests: 0 requests")


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.builds(Served, *[NUMBERS] * 7), st.builds(Served, *[NUMBERS] * 7))
def test_nothing_passes_without_enough_finite_requests_of_both(candidate, live):
    verdict = verdict_of(judge(Side(candidate), Side(live), LIMITS))

    if verdict is Verdict.PASSED:
        assert candidate.requests >= LIMITS.min_requests
        assert live.requests >= LIMITS.min_requests
        assert all(math.isfinite(value) for side in (candidate, live) for value in side.__dict__.values())
