"""`python -m bench.aiperf`: the benchmark step's load test beside NVIDIA's AIPerf, same server and same load.

A Triton, front and API of its own, and a model with a known pace: TOKENS_PER_S tokens a second to each client. AIPerf
sends to OpenAI's chat endpoint, streaming; the load test sends gRPC streams to Triton, as it does in the gate. Both are
closed loops of the same number of clients, requests and tokens, and take turns. Prints the medians of ROUNDS pairs.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.paced import NAME, PACED, TOKENS_PER_S
from bench.pod import ADDRESS, ENVIRONMENTS, FRONT, REPOSITORY, pod
from tasks.adapters.clock import SystemClock
from tasks.adapters.generate_request import GenerateRequest
from tasks.adapters.load_test import Capacity, LoadTest
from tasks.adapters.service_object import ServiceAddress
from tasks.adapters.tokens import TokenCounter
from tasks.contracts.gate_spec import Benchmark
from tasks.contracts.load_level import LoadLevel
from tasks.contracts.measurement import summarize
from tasks.engines.cpus import cpu_quota

ROUNDS = 3
WITHIN = 0.03
REQUESTS = {1: 10, 16: 96}
"""Requests of a round, by number of clients."""
TOKENS, QUESTION = 50, "Tell me everything."
TOKENIZER = REPOSITORY / "tests" / "fixtures" / "hub" / "slipway" / "demo-llama" / "v1"
"""AIPerf writes its prompts with it; tokens are counted by the server."""
COUNTER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"token": 0}, "unk_token": "token"},
}
"""A tokenizer.json whose tokens are those of the paced model."""
AIPERF = ENVIRONMENTS / "clients" / "bin" / "aiperf"
LIMIT_S = 300


@dataclass(frozen=True)
class Measured:
    """One round: medians, the 99th percentile of ITL, and requests per second."""

    ttft_ms: float
    itl_ms: float
    itl_p99_ms: float
    requests_per_s: float


def main() -> int:
    """Print a line for each number of clients; 1 if AIPerf is not installed."""
    if not AIPERF.exists():
        print(f"bench.aiperf: {AIPERF} is missing. Run `python3 -m local.environments clients`.", file=sys.stderr)
        return 1
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians of {ROUNDS} pairs of")
    print("rounds that take turns: AIPerf at /v1/chat/completions / the benchmark step at Triton's gRPC;")
    print(f"a model with {TOKENS_PER_S} tokens/s for each client, answers of {TOKENS} tokens")
    with tempfile.TemporaryDirectory() as folder, pod(Path(folder, "pod"), {NAME: PACED}, openai=()):
        for clients, requests in REQUESTS.items():
            pairs = [(by_aiperf(Path(folder), clients, requests), by_step(clients, requests)) for _ in range(ROUNDS)]
            print(f"{clients:2} clients, {requests} requests: {compared(pairs)}")
    return 0


def by_aiperf(folder: Path, clients: int, requests: int) -> Measured:
    """A round of AIPerf in a process of its own.

    Raises:
        SystemExit: AIPerf failed, or a request did.
    """
    out = Path(tempfile.mkdtemp(dir=folder))
    command = [AIPERF, "profile", "--model", NAME, "--url", f"http://{ADDRESS}:{FRONT['http']}"]
    command += ["--endpoint-type", "chat", "--streaming", "--use-server-token-count", "--tokenizer", TOKENIZER]
    command += ["--concurrency", clients, "--request-count", requests, "--warmup-request-count", clients]
    command += ["--isl", 8, "--isl-stddev", 0, "--osl", TOKENS, "--osl-stddev", 0, "--random-seed", 1]
    command += ["--ui-type", "none", "--output-artifact-dir", out]
    environment = {"PATH": os.environ["PATH"], "HOME": str(out), "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=out,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"aiperf ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
    found = json.loads((out / "profile_export_aiperf.json").read_text())
    if found["request_count"]["avg"] != requests or (found.get("error_request_count") or {}).get("avg"):
        raise SystemExit(f"aiperf: {requests} requests were to succeed, {found['request_count']['avg']:g} did")
    ttft, itl = found["time_to_first_token"], found["inter_token_latency"]
    return Measured(ttft["p50"], itl["p50"], itl["p99"], found["request_throughput"]["avg"])


def by_step(clients: int, requests: int) -> Measured:
    """A round of the benchmark step's load test.

    Raises:
        SystemExit: a request failed.
    """
    settings = Benchmark(concurrency=(clients,), requests=requests, warmup=clients, max_tokens=TOKENS)
    counter = TokenCounter(json.dumps(COUNTER).encode())
    asked = [GenerateRequest(QUESTION, TOKENS)]
    load = LoadTest(NAME, settings, asked, counter, SystemClock(), capacity=Capacity(cpu_quota()))
    target = ServiceAddress(ADDRESS, FRONT)
    rows = load.level(LoadLevel(concurrency=clients), {"candidate": target}, decided=lambda _: True)
    if failed := [row.error for row in rows if not row.ok]:
        raise SystemExit(f"the load test: {len(failed)} of {requests} requests failed: {failed[0]}")
    summary = summarize(rows, settings.goodput)
    ttft, itl = summary.percentiles["ttft_ms"], summary.percentiles["itl_ms"]
    return Measured(ttft["p50"] or 0.0, itl["p50"] or 0.0, itl["p99"] or 0.0, summary.requests_per_s)


def compared(pairs: list[tuple[Measured, Measured]]) -> str:
    """The medians of both, AIPerf's first, their ratios, and whether the goals are met."""
    parts, ratios = [], {}
    for name, field, unit in (
        ("TTFT", "ttft_ms", "ms"),
        ("ITL", "itl_ms", "ms"),
        ("ITL p99", "itl_p99_ms", "ms"),
        ("rate", "requests_per_s", "requests/s"),
    ):
        theirs, ours = (median(getattr(pair[which], field) for pair in pairs) for which in (0, 1))
        ratios[field] = theirs / ours
        parts.append(f"{name} {theirs:.2f} / {ours:.2f} {unit} = {theirs / ours:.2f}")
    met = all(abs(ratios[field] - 1) <= WITHIN for field in ("itl_ms", "itl_p99_ms"))
    met = met and ratios["requests_per_s"] <= 1
    goal = f"goal ITL within {WITHIN:.0%} and as many requests/s {'met' if met else 'missed'}"
    return f"{', '.join(parts)}; {goal}"


if __name__ == "__main__":
    sys.exit(main())
