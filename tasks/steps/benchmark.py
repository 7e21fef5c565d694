"""benchmark: put the same load on the candidate and the live release, in turns. It records; the gate judges."""

import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tasks.adapters.clock import Clock, cpu_seconds
from tasks.adapters.comparison import compare
from tasks.adapters.generate_request import GenerateRequest
from tasks.adapters.kube import Cluster
from tasks.adapters.service_object import ServiceAddress
from tasks.adapters.tokens import TokenCounter
from tasks.adapters.triton import TritonClient
from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts import looks
from tasks.contracts.base import canonical_json
from tasks.contracts.errors import PipelineError
from tasks.contracts.evidence import Evidence, lines
from tasks.contracts.gate_spec import PER_LEVEL_METRICS, Benchmark
from tasks.contracts.measurement import LevelSummary, RequestRow, Target, packed, summarize
from tasks.contracts.release import Release
from tasks.engines.cpus import cpu_quota


def run(release: Release, workspace: Workspace) -> Outcome:
    """Measure every level of concurrency; write evidence/requests.jsonl.gz and summary.json.

    The turns are candidate, live, live, candidate and so on, so that drift in the machine's speed affects both. Without
    a live release, or with rollout.surge none, which leaves it fewer GPUs, only the candidate is measured.

    Raises:
        InputError: there is no candidate.
    """
    spec = release.spec
    cluster = workspace.cluster()
    targets = targets_of(release, cluster)
    counter = TokenCounter(workspace.store.read_bytes(_tokenizer_uri(release, workspace)))
    load = LoadTest(spec.name, spec.gate.benchmark, _prompts(release, workspace), counter, workspace.clock)
    rows = [
        row
        for level in spec.gate.benchmark.concurrency
        for row in load.level(level, targets, functools.partial(is_decided, release, level))
    ]
    summaries = [
        summary.model_copy(update={"client_busy": load.busy(summary.concurrency)})
        for summary in _summaries(rows, spec.gate.benchmark)
    ]
    evidence = workspace.layout.evidence(spec.name, release.id, release.plan.run)
    uri = f"{evidence}/requests.jsonl.gz"
    workspace.store.put_bytes(uri, packed(rows), content_type="application/gzip")
    table = [summary.model_dump(mode="json") for summary in summaries]
    workspace.store.put_bytes(f"{evidence}/summary.json", canonical_json(table))
    return Outcome(_summary_line(summaries), {"requests_uri": uri, "summaries": table})


def targets_of(release: Release, cluster: Cluster) -> dict[Target, ServiceAddress]:
    """The Services to measure. A live release that gave its GPUs to the candidate (rollout.surge none) is not one."""
    name = release.spec.name
    targets: dict[Target, ServiceAddress] = {"candidate": cluster.candidate_address(name)}
    live = cluster.live_address(name) if release.spec.rollout.surge == "full" else None
    return targets if live is None else {**targets, "live": live}


def _connect(address: ServiceAddress) -> TritonClient:
    return TritonClient(address.host, address.ports["http"], address.ports["grpc"])


class LoadTest:
    """A closed loop: as many clients as the level says, each of which sends its next request after an answer ends."""

    def __init__(
        self,
        model: str,
        settings: Benchmark,
        prompts: Sequence[str],
        counter: TokenCounter,
        clock: Clock,
        *,
        connect: Callable[[ServiceAddress], TritonClient] = _connect,
        cpu_s: Callable[[], float] = cpu_seconds,
        cpus: float | None = None,
    ) -> None:
        """Prepare the load.

        Args:
            model: the model's name.
            settings: the spec's.
            prompts: sent in turn, again and again.
            counter: counts the tokens of answers.
            clock: times the requests.
            connect: connects a client.
            cpu_s: CPU time that this process has used so far.
            cpus: CPUs that it may use; None: those of its container.
        """
        self._model, self._settings, self._prompts = model, settings, prompts
        self._counter, self._clock, self._connect = counter, clock, connect
        # one thread at a time runs Python, so more than one CPU does not help
        self._cpu_s, self._cpus = cpu_s, min(1.0, cpu_quota() if cpus is None else cpus)
        self._began_s = clock.monotonic()
        self._turns_s: dict[int, list[tuple[float, float]]] = {}

    def level(
        self, concurrency: int, targets: dict[Target, ServiceAddress], decided: Callable[[list[RequestRow]], bool]
    ) -> list[RequestRow]:
        """Measure one level, without the warm-up requests: `settings.requests` rows for each target.

        With `settings.max_requests` more turns follow until `decided` of all rows so far, or the time budget ends.
        """
        for target, address in targets.items():
            self._batch(concurrency, 0, target, address, self._settings.warmup)
        rows: list[RequestRow] = []
        batches = itertools.count()
        counts = looks.planned(self._settings)
        for before, count in itertools.pairwise([0, *counts]):
            for turns in self._turns(concurrency, count - before, targets):
                if before and self._clock.monotonic() - self._began_s > self._settings.budget_s:
                    return rows
                for target, requests in turns:
                    before_s = self._cpu_s(), self._clock.monotonic()
                    rows += self._batch(concurrency, next(batches), target, targets[target], requests)
                    took_s = self._cpu_s() - before_s[0], self._clock.monotonic() - before_s[1]
                    self._turns_s.setdefault(concurrency, []).append(took_s)
            if count != counts[-1] and decided(rows):
                return rows
        return rows

    def busy(self, concurrency: int) -> float | None:
        """Share of a level's turns in which this process computed: at 1 it was the limit, not the server."""
        turns = self._turns_s.get(concurrency, [])
        lasted_s = sum(each[1] for each in turns)
        return sum(each[0] for each in turns) / lasted_s / self._cpus if lasted_s else None

    def _turns(
        self, concurrency: int, requests: int, targets: dict[Target, ServiceAddress]
    ) -> Iterator[list[tuple[Target, int]]]:
        """Turns of each target, in the order candidate, live, live, candidate, after each of which both are even."""
        order: list[Target] = ["candidate", "live"] if "live" in targets else ["candidate"]
        size = looks.turn_requests(self._settings, concurrency) if "live" in targets else requests
        while requests:
            turn = min(size, requests)
            yield [(target, turn) for target in order]
            requests -= turn
            order.reverse()

    def _batch(
        self, concurrency: int, batch: int, target: Target, address: ServiceAddress, requests: int
    ) -> list[RequestRow]:
        prompts = iter(list(itertools.islice(itertools.cycle(self._prompts), requests)))
        lock = threading.Lock()

        def remaining() -> Iterator[str]:
            while True:
                with lock:
                    prompt = next(prompts, None)
                if prompt is None:
                    return
                yield prompt

        def client_loop(_: int) -> list[RequestRow]:
            with self._connect(address) as client:
                return [self._request(client, concurrency, batch, target, prompt) for prompt in remaining()]

        with ThreadPoolExecutor(concurrency) as pool:
            return [row for rows in pool.map(client_loop, range(concurrency)) for row in rows]

    def _request(self, client: TritonClient, concurrency: int, batch: int, target: Target, prompt: str) -> RequestRow:
        row = {"target": target, "concurrency": concurrency, "batch": batch, "prompt": prompt}
        start_s = self._clock.monotonic()
        request = GenerateRequest(prompt, self._settings.max_tokens)
        try:
            chunks = [c for c in client.stream(self._model, request, self._settings.request_timeout_s) if c.text]
        except PipelineError as error:
            end_s = self._clock.monotonic() - self._began_s
            failed = {"ok": False, "error": str(error), "start_s": start_s - self._began_s, "last_token_s": end_s}
            return RequestRow.model_validate({**row, **failed})
        times = {
            "start_s": start_s - self._began_s,
            "first_token_s": chunks[0].at_s - self._began_s if chunks else None,
            "last_token_s": chunks[-1].at_s - self._began_s if chunks else None,
        }
        tokens = self._counter.count("".join(chunk.text for chunk in chunks))
        ended = {"ok": bool(chunks), "error": "" if chunks else "the answer was empty", "output_tokens": tokens}
        return RequestRow.model_validate({**row, **times, **ended})


def is_decided(release: Release, concurrency: int, rows: Sequence[RequestRow]) -> bool:
    """Whether more requests cannot change the gate's verdict on this level, or are not needed for it.

    One failed comparison is enough: it stays failed, and the gate fails with it.
    """
    gate = release.spec.gate
    evidence = Evidence(rows, (), gate.benchmark.goodput)
    expected = [
        line for line in gate.expect if line.metric in PER_LEVEL_METRICS and (line.of is None or release.plan.live)
    ]
    levels = [line for line in lines(expected, gate.benchmark.concurrency, evidence) if line.concurrency == concurrency]
    compared = [
        (line.expectation, compare(line.expectation, concurrency, evidence, gate.benchmark))
        for line in levels
        if line.expectation.of and line.problem is None
    ]
    if any(ratio is not None and ratio.fails(expectation) for expectation, ratio in compared):
        return True
    return all(line.problem is None for line in levels) and all(
        ratio is not None and ratio.passes(expectation) for expectation, ratio in compared
    )


def _tokenizer_uri(release: Release, workspace: Workspace) -> str:
    key = release.plan.stages["build"].key
    return f"{workspace.layout.artifact('build', key)}/tokenizer.json"


def _prompts(release: Release, workspace: Workspace) -> list[str]:
    pinned = release.plan.datasets.quality
    if pinned is None:
        return [question.prompt for question in release.spec.gate.smoke]
    return [str(line["prompt"]) for line in workspace.read_dataset(pinned)]


def _summaries(rows: Sequence[RequestRow], settings: Benchmark) -> list[LevelSummary]:
    groups: dict[tuple[int, Target], list[RequestRow]] = {}
    for row in rows:
        groups.setdefault((row.concurrency, row.target), []).append(row)
    return [summarize(group, settings.goodput) for group in groups.values()]


def _summary_line(summaries: Sequence[LevelSummary]) -> str:
    parts = []
    for summary in (summary for summary in summaries if summary.target == "candidate"):
        ttft = summary.percentiles["ttft_ms"]["p95"]
        shown = "no data" if ttft is None else f"{ttft:.1f} ms"
        parts.append(f"{summary.concurrency} at once: {summary.output_tokens_per_s:.0f} tokens/s, TTFT p95 {shown}")
    return "; ".join(parts)
