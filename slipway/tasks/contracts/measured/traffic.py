"""What Triton and the pods' fronts counted of a release's requests, and how two releases compare. Pure.

Metrics: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/metrics.html
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median

from slipway.tasks.contracts.measured.gate import Verdict, worst
from slipway.tasks.contracts.spec.rollout import CanaryLimits

SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?$")
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
FIRST_RESPONSE = {
    "nv_inference_first_response_histogram_ms": 1e-3,
    "vllm:time_to_first_token_seconds": 1.0,
}
"""Histograms of the time until the first response, and their unit in seconds: Triton's own, and of its vLLM backend."""
FRONT_LISTENERS = ("http", "grpc")
"""Stat prefixes of k8s_manifests/serving/front_config.yaml.j2."""
SHORT_S = 0.01
"""Differences below it never count as a slowdown.

A front counts in whole milliseconds, and one request of 20 that waits 60 ms for a CPU makes a mean of 1.5 ms three
times as long. No client notices 10 ms in an answer of a language model.
"""
MIN_PROBES = 3


@dataclass(frozen=True)
class Served:
    """Sums over requests. Times are in seconds."""

    succeeded: float = 0.0
    failed: float = 0.0
    timed: float = 0.0
    request_s: float = 0.0
    queue_s: float = 0.0
    first_responses: float = 0.0
    first_response_s: float = 0.0

    def __add__(self, other: "Served") -> "Served":
        return Served(*(mine + theirs for mine, theirs in zip(_values(self), _values(other), strict=True)))

    @property
    def requests(self) -> float:
        """Requests that were answered, in whatever way."""
        return self.succeeded + self.failed


def read_page(page: str, model: str) -> Served:
    """What a page of Triton's metrics counts for one model since its server started.

    Raises:
        ValueError: a value is not a number.
    """
    found = dict.fromkeys((field.name for field in fields(Served)), 0.0)
    for line in page.splitlines():
        match = SAMPLE.match(line)
        if match is None:
            continue
        name, labels, value = match[1], dict(LABEL.findall(match[2] or "")), float(match[3])
        if labels.get("model", labels.get("model_name")) != model:
            continue
        base, _, suffix = name.rpartition("_")
        if name == "nv_inference_request_success":
            found["succeeded"] += value
            found["timed"] += value
        elif name == "nv_inference_request_failure":
            found["failed"] += value
        elif name == "nv_inference_request_duration_us":
            found["request_s"] += value / 1e6
        elif name == "nv_inference_queue_duration_us":
            found["queue_s"] += value / 1e6
        elif base in FIRST_RESPONSE and suffix == "sum":
            found["first_response_s"] += value * FIRST_RESPONSE[base]
        elif base in FIRST_RESPONSE and suffix == "count":
            found["first_responses"] += value
    return Served(**found)


def read_front_page(page: str) -> Served:
    """What the metrics of a pod's front count of the answers to its clients, with every status below 400 a success.

    Raises:
        ValueError: a value is not a number.
    """
    succeeded = failed = timed = request_s = 0.0
    for line in page.splitlines():
        match = SAMPLE.match(line)
        if match is None:
            continue
        name, labels, value = match[1], dict(LABEL.findall(match[2] or "")), float(match[3])
        if labels.get("envoy_http_conn_manager_prefix") not in FRONT_LISTENERS:
            continue
        if name == "envoy_http_downstream_rq_xx":
            good = labels.get("envoy_response_code_class", "") in {"1", "2", "3"}
            succeeded, failed = succeeded + value * good, failed + value * (not good)
        elif name == "envoy_http_downstream_rq_time_count":
            timed += value
        elif name == "envoy_http_downstream_rq_time_sum":
            request_s += value / 1e3
    return Served(succeeded, failed, timed, request_s)


def grown(before: Mapping[str, Served], after: Mapping[str, Served]) -> Served:
    """What was counted between two looks at the pods of a release, each by its name.

    A pod that is new, or whose counters fell because its server started again, counts from zero.
    """
    total = Served()
    for pod, now in after.items():
        then = before.get(pod, Served())
        restarted = any(new < old for new, old in zip(_values(now), _values(then), strict=True))
        total += now if restarted else Served(*(n - t for n, t in zip(_values(now), _values(then), strict=True)))
    return total


@dataclass(frozen=True)
class Side:
    """One release during a step."""

    served: Served = Served()
    """What Triton counted, the probes with it; what requests took beside a probe is left out."""
    probes_s: tuple[float, ...] = ()
    answered: Served = Served()
    """What the pods' fronts counted, where they show it."""

    @property
    def clients_requests(self) -> float:
        """Requests of clients. At most a probe too few: Triton may count one a moment after its answer has arrived."""
        return self.served.requests - len(self.probes_s)


@dataclass(frozen=True)
class Finding:
    """One comparison, and a line about it for a person."""

    verdict: Verdict
    why: str


def judge(candidate: Side, live: Side, limits: CanaryLimits) -> list[Finding]:
    """Compare the candidate with the live release. Thin and non-finite data is inconclusive."""
    counts = f"{candidate.clients_requests:g} requests, live {live.clients_requests:g}"
    read = (candidate.served, live.served, candidate.answered, live.answered)
    if not all(math.isfinite(value) for served in read for value in _values(served)):
        return [Finding(Verdict.INCONCLUSIVE, f"a metric is not finite ({counts})")]
    if min(candidate.clients_requests, live.clients_requests) < limits.min_requests:
        return [Finding(Verdict.INCONCLUSIVE, f"too few requests: {counts}, at least {limits.min_requests} are needed")]
    findings = errors(candidate, live, limits)
    for what, mine, theirs, noticed_s in _times(candidate, live, limits):
        slow = mine > limits.slowdown * theirs and mine - theirs > noticed_s
        ratio = f", {mine / theirs:.2f} x" if theirs else ""
        limit = f"limit {limits.slowdown:g} x and {1e3 * noticed_s:.4g} ms more"
        why = f"{what} {1e3 * mine:.4g} ms, live {1e3 * theirs:.4g} ms{ratio} ({limit}; {counts})"
        findings.append(Finding(Verdict.FAILED if slow else Verdict.PASSED, why))
    return findings


def errors(candidate: Side, live: Side, limits: CanaryLimits) -> list[Finding]:
    """Compare the shares of failed requests, of whatever the candidate has enough requests of.

    A front counts the looks of the kubelet and of load balancers too, which never fail and are more than the requests
    of a small share: its failures are compared with the requests that Triton counted, where those are fewer.
    """
    pairs = [
        ("requests", candidate.served, live.served),
        ("answers", _of_clients(candidate), _of_clients(live)),
    ]
    return [
        _errors(what, mine, theirs, limits)
        for what, mine, theirs in pairs
        if mine.requests - len(candidate.probes_s) >= limits.min_requests and theirs.requests
    ]


def _of_clients(side: Side) -> Served:
    """What the fronts counted, without requests that are no inference."""
    counted, inferences = side.answered, side.served.requests
    succeeded = max(0.0, inferences - counted.failed) if inferences < counted.requests else counted.succeeded
    return replace(counted, succeeded=succeeded)


def _errors(what: str, candidate: Served, live: Served, limits: CanaryLimits) -> Finding:
    mine, theirs = (side.failed / side.requests for side in (candidate, live))
    why = (
        f"{mine:.2%} of {candidate.requests:g} {what} failed, live {theirs:.2%} of {live.requests:g} "
        f"(limit {limits.extra_errors:.2%} more)"
    )
    return Finding(Verdict.FAILED if mine - theirs > limits.extra_errors else Verdict.PASSED, why)


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """The worst of them."""
    return worst(finding.verdict for finding in findings)


def _times(candidate: Side, live: Side, limits: CanaryLimits) -> Iterable[tuple[str, float, float, float]]:
    """Mean times of both releases of whatever both export, and a difference that clients notice, in seconds.

    The fronts' sum is of all answers, and their count has the looks of kubelet and load balancers in it, which take no
    time: Triton's count of inferences without the probes is that of the clients. Its own times are a part of an
    answer's, for a decoupled model a moment of it: alone they fail a candidate only if they make an answer too slow by
    themselves.
    """
    mine, theirs = candidate.served, live.served
    probed = min(len(candidate.probes_s), len(live.probes_s)) >= MIN_PROBES
    if mine.timed and theirs.timed:
        noticed_s = SHORT_S
        if candidate.answered.timed and live.answered.timed:
            answer_s, live_answer_s = (side.answered.request_s / side.clients_requests for side in (candidate, live))
            yield "answer", answer_s, live_answer_s, SHORT_S
            if probed:
                noticed_s = max(SHORT_S, (limits.slowdown - 1) * min(live_answer_s, median(live.probes_s)))
        yield "request", mine.request_s / mine.timed, theirs.request_s / theirs.timed, noticed_s
        yield "queue", mine.queue_s / mine.timed, theirs.queue_s / theirs.timed, noticed_s
    if mine.first_responses and theirs.first_responses:
        yield (
            "first response",
            mine.first_response_s / mine.first_responses,
            theirs.first_response_s / theirs.first_responses,
            SHORT_S,
        )
    if probed:
        yield "probe", median(candidate.probes_s), median(live.probes_s), SHORT_S


def _values(served: Served) -> Sequence[float]:
    return [getattr(served, field.name) for field in fields(served)]
