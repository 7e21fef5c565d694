"""`python -m bench.serving.aiperf`: the benchmark step's load test beside NVIDIA's AIPerf, same server and same load.

A Triton of its own with a model of a known pace: the first token after FIRST_S seconds, then TOKENS_PER_S tokens a
second to each client. AIPerf sends to Triton's own generate_stream over HTTP, by its endpoint type "template"; the load
test sends gRPC streams, as it does in the gate. No front and no API between. Both are closed loops of the same number
of clients, requests and tokens, with the same prompt and the same tokenizer, and take turns. Where they disagree, a
third client says which of them is late: bench.serving.streams, bare sockets in one process, at AIPerf's address.
Prints medians of five rounds of eight answers for each client, unless --rounds and --answers say otherwise.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from bench.pod import ADDRESS, DIRECT, ENVIRONMENTS, pod
from bench.serving.paced import NAME, TOKENS_PER_S, paced
from bench.serving.streams import Route, play
from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.adapters.load.load_test import Capacity, LoadTest
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.tokens import TokenCounter
from slipway.tasks.contracts.measured.measurement import summarize
from slipway.tasks.contracts.spec.gate import Benchmark
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.engines.cpus import cpu_quota

ROUNDS = 5
WITHIN = 0.03
CLIENTS = (4, 16)
ANSWERS = 8
"""Each client gets so many answers in a round."""
FIRST_S, TOKENS, QUESTION = 0.2, 40, "Tell me everything."
COUNTER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"token": 0}, "unk_token": "token"},
}
"""A tokenizer.json whose tokens are those of the paced model."""
TEMPLATE = {
    "payload_template": f'{{"text_input": {{{{ text|tojson }}}}, "max_tokens": {TOKENS}, "stream": true}}',
    "response_field": "text_output",
}
PERCENTILES = ("p50", "p90", "p99")
AIPERF = ENVIRONMENTS / "clients" / "bin" / "aiperf"
LIMIT_S = 300


@dataclass(frozen=True)
class Measured:
    """One round: percentiles of TTFT and of each request's mean ITL, in milliseconds, and requests per second."""

    ttft_ms: Mapping[str, float]
    itl_ms: Mapping[str, float]
    requests_per_s: float


def main() -> int:
    """Print a line for each number of clients; 1 if AIPerf is not installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--answers", type=int, default=ANSWERS, help="for each client, in a round")
    arguments = parser.parse_args()
    if not AIPERF.exists():
        print(
            f"bench.serving.aiperf: {AIPERF} is missing. Run `python3 -m local.environments clients`.", file=sys.stderr
        )
        return 1
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians of", end=" ")
    print(f"{arguments.rounds} pairs of rounds that take turns: AIPerf at generate_stream / step benchmark at gRPC,")
    print("both of the same Triton;", end=" ")
    print("in brackets bare sockets at generate_stream;", end=" ")
    print(f"first token after {FIRST_S} s, then {TOKENS_PER_S} tokens/s for each client, answers of {TOKENS} tokens")
    with tempfile.TemporaryDirectory() as folder, pod(Path(folder, "pod"), {NAME: paced(FIRST_S)}):
        for clients in CLIENTS:
            requests = clients * arguments.answers
            rounds = [
                (by_aiperf(Path(folder), clients, requests), by_step(clients, requests), first_ms(clients, requests))
                for _ in range(arguments.rounds)
            ]
            for line in compared(rounds):
                print(f"{clients:2} clients, {requests} requests: {line}", flush=True)
    return 0


def by_aiperf(folder: Path, clients: int, requests: int) -> Measured:
    """A round of AIPerf in a process of its own.

    Raises:
        SystemExit: AIPerf failed, or a request did.
    """
    out = Path(tempfile.mkdtemp(dir=folder))
    (out / "tokenizer").mkdir()
    (out / "tokenizer" / "tokenizer.json").write_text(json.dumps(COUNTER))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "token"}
    (out / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(kind))
    (out / "prompts.jsonl").write_text(json.dumps({"text": QUESTION}))
    command = [AIPERF, "profile", "--model", NAME, "--url", f"http://{ADDRESS}:{DIRECT['http']}", "--streaming"]
    command += ["--endpoint-type", "template", "--custom-endpoint", f"/v2/models/{NAME}/generate_stream"]
    command += ["--extra-inputs", json.dumps(TEMPLATE), "--tokenizer", out / "tokenizer"]
    command += ["--input-file", out / "prompts.jsonl", "--custom-dataset-type", "single_turn"]
    command += ["--concurrency", clients, "--request-count", requests, "--warmup-request-count", clients]
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
    if found["output_sequence_length"]["avg"] != TOKENS:
        raise SystemExit(f"aiperf counted {found['output_sequence_length']['avg']:g} tokens of {TOKENS}")
    ttft, itl = (
        {name: found[key][name] for name in PERCENTILES} for key in ("time_to_first_token", "inter_token_latency")
    )
    return Measured(ttft, itl, found["request_throughput"]["avg"])


def by_step(clients: int, requests: int) -> Measured:
    """A round of the benchmark step's load test.

    Raises:
        SystemExit: a request failed.
    """
    settings = Benchmark(concurrency=(clients,), requests=requests, warmup=clients, max_tokens=TOKENS)
    counter = TokenCounter(json.dumps(COUNTER).encode())
    asked = [GenerateRequest(QUESTION, TOKENS)]
    load = LoadTest(NAME, settings, asked, counter, SystemClock(), capacity=Capacity(cpu_quota()))
    target = ServiceAddress(ADDRESS, DIRECT)
    rows = load.level(LoadLevel(concurrency=clients), {"candidate": target}, decided=lambda _: True)
    if failed := [row.error for row in rows if not row.ok]:
        raise SystemExit(f"the load test: {len(failed)} of {requests} requests failed: {failed[0]}")
    summary = summarize(rows, settings.goodput)
    ttft, itl = (
        {name: summary.percentiles[metric][name] or 0.0 for name in PERCENTILES} for metric in ("ttft_ms", "itl_ms")
    )
    return Measured(ttft, itl, summary.requests_per_s)


def first_ms(clients: int, requests: int) -> dict[str, float]:
    """Percentiles of TTFT of a round of bare sockets; their first answers, which open connections, are left out."""
    body = {"text_input": QUESTION, "max_tokens": TOKENS, "stream": True}
    route = Route(ADDRESS, DIRECT["http"], f"/v2/models/{NAME}/generate_stream", body)
    played = play(route, clients=clients, answers=1 + requests // clients).first_ms[clients:]
    return {name: float(np.percentile(played, int(name.removeprefix("p")))) for name in PERCENTILES}


def compared(rounds: Sequence[tuple[Measured, Measured, Mapping[str, float]]]) -> Iterator[str]:
    """The medians of AIPerf, ours and for TTFT the sockets', the ratios of the first two, and whether goals are met."""
    for name, field in (("TTFT", "ttft_ms"), ("ITL", "itl_ms")):
        parts, met = [], True
        for percentile in PERCENTILES:
            theirs, ours = (median(getattr(each[which], field)[percentile] for each in rounds) for which in (0, 1))
            sockets = f" ({median(each[2][percentile] for each in rounds):.1f})" if name == "TTFT" else ""
            parts.append(f"{percentile} {theirs:.1f} / {ours:.1f}{sockets} = {theirs / ours:.3f}")
            met = met and abs(theirs / ours - 1) <= WITHIN
        yield f"{name} in ms {', '.join(parts)}, goal {WITHIN:.0%} apart {'met' if met else 'missed'}"
    theirs = median(aiperf.requests_per_s for aiperf, _, _ in rounds)
    ours = median(step.requests_per_s for _, step, _ in rounds)
    verdict = "met" if ours >= theirs else "missed"
    yield f"{theirs:.2f} / {ours:.2f} requests/s = {theirs / ours:.3f}, goal as many as AIPerf {verdict}"


if __name__ == "__main__":
    sys.exit(main())
