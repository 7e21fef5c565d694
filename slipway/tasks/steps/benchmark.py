"""benchmark: put the same load on the candidate and the live release, in turns. It records; the gate judges."""

import functools
from collections.abc import Sequence

from slipway.tasks.adapters.judge.comparison import compare
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.chunk_rate import stamps_per_s
from slipway.tasks.adapters.load.load_prompts import load_requests
from slipway.tasks.adapters.load.load_test import Capacity, LoadTest
from slipway.tasks.adapters.triton.tokens import TokenCounter
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.measured.evidence import Evidence, lines
from slipway.tasks.contracts.measured.measurement import LevelSummary, RequestRow, Target, packed, summarize
from slipway.tasks.contracts.spec.gate import PER_LEVEL_METRICS, Benchmark
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.engines.cpus import cpu_quota


def run(release: Release, workspace: Workspace) -> Outcome:
    """Measure every level of load; write evidence/requests.jsonl.gz and summary.json.

    The turns are candidate, live, live, candidate and so on, so that drift in the machine's speed affects both. Without
    a live release, or with rollout.surge none, which leaves it fewer GPUs, only the candidate is measured.

    Raises:
        InputError: there is no candidate.
    """
    spec = release.spec
    cluster = workspace.cluster()
    targets = targets_of(release, cluster)
    engine = workspace.layout.artifact("build", release.plan.stages["build"].key)
    counter = TokenCounter(workspace.store.read_bytes(f"{engine}/tokenizer.json"))
    prompts = release.plan.datasets.load_prompts or release.plan.datasets.quality
    requests = load_requests(spec, workspace.datasets.read(prompts) if prompts else None, counter)
    capacity = Capacity(cpu_quota(), stamps_per_s())
    with LoadTest(spec.name, spec.gate.benchmark, requests, counter, workspace.clock, capacity=capacity) as load:
        rows = [
            row
            for level in spec.gate.benchmark.levels
            for row in load.level(level, targets, functools.partial(is_decided, release, level))
        ]
    summaries = [_with_client(summary, load) for summary in _summaries(rows, spec.gate.benchmark)]
    evidence = workspace.evidence(release)
    uri = evidence.write_bytes("requests.jsonl.gz", packed(rows), content_type="application/gzip")
    table = [summary.model_dump(mode="json") for summary in summaries]
    evidence.write("summary.json", table)
    return Outcome(_summary_line(summaries), {"requests_uri": uri, "summaries": table})


def targets_of(release: Release, cluster: Cluster) -> dict[Target, ServiceAddress]:
    """The Services to measure. A live release that gave its GPUs to the candidate (rollout.surge none) is not one."""
    name = release.spec.name
    targets: dict[Target, ServiceAddress] = {"candidate": cluster.candidate_address(name)}
    live = cluster.live_address(name) if release.spec.rollout.surge == "full" else None
    return targets if live is None else {**targets, "live": live}


def is_decided(release: Release, level: LoadLevel, rows: Sequence[RequestRow]) -> bool:
    """Whether more requests cannot change the gate's verdict on this level, or are not needed for it.

    One failed comparison is enough: it stays failed, and the gate fails with it.
    """
    gate = release.spec.gate
    evidence = Evidence(rows, (), gate.benchmark.goodput)
    expected = [
        line for line in gate.expect if line.metric in PER_LEVEL_METRICS and (line.of is None or release.plan.live)
    ]
    here = [line for line in lines(expected, gate.benchmark.levels, evidence) if line.level == level]
    compared = [
        (line.expectation, compare(line.expectation, level, evidence, gate.benchmark))
        for line in here
        if line.expectation.of and line.problem is None
    ]
    if any(ratio is not None and ratio.fails(expectation) for expectation, ratio in compared):
        return True
    return all(line.problem is None for line in here) and all(
        ratio is not None and ratio.passes(expectation) for expectation, ratio in compared
    )


def _summaries(rows: Sequence[RequestRow], settings: Benchmark) -> list[LevelSummary]:
    groups: dict[tuple[LoadLevel, Target], list[RequestRow]] = {}
    for row in rows:
        groups.setdefault((row.level, row.target), []).append(row)
    return [summarize(group, settings.goodput) for group in groups.values()]


def _with_client(summary: LevelSummary, load: LoadTest) -> LevelSummary:
    """The summary with what is known of the load generator at its level."""
    level = summary.level
    return summary.model_copy(
        update={
            "client_busy": load.busy(level),
            "client_chunks_per_s": load.stamps_per_s(level),
            "client_processes": load.processes(level),
        }
    )


def _summary_line(summaries: Sequence[LevelSummary]) -> str:
    return "; ".join(_level_line(summary) for summary in summaries if summary.target == "candidate")


def _level_line(summary: LevelSummary) -> str:
    ttft, share = summary.percentiles["ttft_ms"]["p95"], summary.client_chunks
    shown = "no data" if ttft is None else f"{ttft:.1f} ms"
    line = f"{summary.level}: {summary.output_tokens_per_s:.0f} tokens/s, TTFT p95 {shown}"
    if share is None:
        return line
    of = "1 process" if summary.client_processes == 1 else f"{summary.client_processes} processes"
    return f"{line}, {share:.0%} of the chunks that the load generator can stamp ({of})"
