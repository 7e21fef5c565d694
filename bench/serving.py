"""`python -m bench.serving`: the demo's engine inside Triton, against the same pipeline called directly.

Both have the settings of the demo's release and one thread of OpenVINO. Triton gets requests over HTTP, without a
front, for whole answers and for streams of them; the peer is bench.pipeline, which only steps the pipeline and decodes
each answer once. Prompts, lengths of answers and numbers of clients are the same, and rounds take turns. The medians of
the rounds are compared. The demo's model has 2 million parameters and takes 0.2 ms for a token, a hundredth of what
models take on a GPU. `--wide` measures one of 25 million with random weights, whose step takes about as long as theirs.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.pod import ADDRESS, DIRECT, ENVIRONMENTS, REPOSITORY, pod
from bench.streams import Round, Route, play_all
from tasks.serving.repository import render

GOAL = 0.9
CLIENTS = (1, 4, 16)
ROUNDS, ROUND_TOKENS = 5, 3000
"""Rounds of each kind, and about how many tokens one has of few clients; each client has four answers at least."""
TOKENS, SPREAD = 96, 32
"""Tokens of an answer on average, and how far those of one client may be from it: clients that all end at once would
leave the pipeline without work at the end of each wave, which those of a service do not."""
NAME = "demo"
FIXTURES = REPOSITORY / "tests" / "fixtures" / "hub"
CHECKPOINT = FIXTURES / "slipway" / "demo-llama" / "v1"
QUESTIONS = FIXTURES / "datasets" / "slipway" / "demo-questions" / "v1" / "eval.jsonl"
WIDE = {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "num_hidden_layers": 8}
"""What differs in the larger model; the vocabulary stays, so that the demo's tokenizer fits."""
MAKE_WIDE = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM

torch.manual_seed(0)
config = AutoConfig.from_pretrained(sys.argv[1], **json.loads(sys.argv[2]))
AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
"""
EXPORT = "tests.local.serving.export_engine"


@dataclass(frozen=True)
class Measured:
    """One round: tokens per second, and the mean milliseconds of an answer."""

    rate: float
    latency_ms: float


def main() -> int:
    """Print a line for each kind of answer and number of clients; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--wide", action="store_true", help="a model of 25 million parameters with random weights")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians of {rounds} rounds in")
    print(f"turns; answers of about {TOKENS} tokens; Triton / the pipeline called directly", flush=True)
    met = True
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), wide=arguments.wide),
        directly(Path(folder, "engine")) as peer,
    ):
        for clients in CLIENTS:
            asked = load(clients)
            kinds: dict[str, list[Measured]] = {"whole answers": [], "streams": [], "directly": []}
            for _ in range(rounds + 1):
                kinds["whole answers"].append(through_triton(asked, stream=False))
                kinds["streams"].append(through_triton(asked, stream=True))
                kinds["directly"].append(through(peer, asked))
            direct = kinds.pop("directly")[1:]  # the first round warms up
            for kind, measured in kinds.items():
                line, reached = compared(measured[1:], direct)
                print(f"{clients:2} clients, {kind}: {line}", flush=True)
                met = met and reached
    return 0 if met else 1


def compared(ours: Sequence[Measured], theirs: Sequence[Measured]) -> tuple[str, bool]:
    """The medians and their ratio, and whether it reaches the goal."""
    rates = median(each.rate for each in ours), median(each.rate for each in theirs)
    over_ms = median(each.latency_ms for each in ours) - median(each.latency_ms for each in theirs)
    reached = rates[0] / rates[1] >= GOAL
    line = f"{rates[0]:.0f} / {rates[1]:.0f} tokens/s = {rates[0] / rates[1]:.2f}, goal {GOAL} "
    return f"{line}{'met' if reached else 'missed'}; {over_ms:.1f} ms more for a request", reached


def load(clients: int) -> list[dict[str, Any]]:
    """Prompt and length of the answers of each client."""
    prompts = [json.loads(line)["prompt"] for line in QUESTIONS.read_text().splitlines()[:clients]]
    lengths = [TOKENS + (7 * number % 17 - 8) * SPREAD // 8 if clients > 1 else TOKENS for number in range(clients)]
    return [{"prompt": prompt, "tokens": tokens} for prompt, tokens in zip(prompts, lengths, strict=True)]


def answers(clients: int) -> int:
    """Answers of each client in a round, so that rounds of few clients are not much shorter."""
    return max(4, ROUND_TOKENS // TOKENS // clients + 4)


def through_triton(asked: Sequence[Mapping[str, Any]], *, stream: bool) -> Measured:
    """A round of Triton."""

    def body(client: Mapping[str, Any]) -> dict[str, Any]:
        tokens = client["tokens"]
        return {"text_input": client["prompt"], "max_tokens": tokens, "min_tokens": tokens, "stream": stream}

    path = f"/v2/models/{NAME}/generate_stream"
    routes = [Route(ADDRESS, DIRECT["http"], path, body(client)) for client in asked]
    return measured(play_all(routes, answers=answers(len(asked))))


def measured(played: Round) -> Measured:
    """What counts of a round over HTTP."""
    return Measured(played.rate, sum(played.latencies_ms) / len(played.latencies_ms))


def through(peer: subprocess.Popen[str], asked: Sequence[Mapping[str, Any]]) -> Measured:
    """A round of the pipeline itself.

    Raises:
        SystemExit: its process ended.
    """
    assert peer.stdin is not None
    assert peer.stdout is not None
    print(json.dumps({"clients": asked, "answers": answers(len(asked))}), file=peer.stdin, flush=True)
    line = peer.stdout.readline()
    if not line:
        raise SystemExit(f"bench.pipeline ended with {peer.wait()}")
    found = json.loads(line)
    latencies_ms = found["latencies_ms"]
    return Measured(found["tokens"] / found["seconds"], sum(latencies_ms) / len(latencies_ms))


@contextmanager
def served(folder: Path, *, wide: bool) -> Iterator[None]:
    """Build the engine as the steps do, in `folder`/engine, and serve it until the block ends."""
    engine, repository, checkpoint = folder / "engine", folder / "pod" / "repository", CHECKPOINT
    if wide:
        checkpoint = Path(shutil.copytree(CHECKPOINT, folder / "wide"))
        python("-c", MAKE_WIDE, str(checkpoint), json.dumps(WIDE))
    python("-m", EXPORT, str(checkpoint), str(engine))
    repository.mkdir(parents=True)
    values = json.loads((engine / "template_values.json").read_text())
    render(REPOSITORY / "model_repository_templates", values["kind"], values, repository)
    shutil.copytree(engine, repository / NAME / "1" / values["engine_folder"])
    with pod(folder / "pod", {NAME: None}):
        yield


def python(*arguments: str) -> None:
    """Run Python with the project's modules.

    Raises:
        SystemExit: it failed.
    """
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments[:2])} failed: {done.stderr[-1000:]}")


@contextmanager
def directly(engine: Path) -> Iterator[subprocess.Popen[str]]:
    """Run bench.pipeline until the block ends."""
    command = [str(ENVIRONMENTS / "triton" / "bin" / "python"), "-m", "bench.pipeline", str(engine)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as peer:
        try:
            yield peer
        finally:
            peer.terminate()


if __name__ == "__main__":
    sys.exit(main())
