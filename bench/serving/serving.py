"""`python -m bench.serving.serving`: the demo's engine inside Triton, against the same pipeline called directly.

Both have the settings of the demo's release and one thread of OpenVINO. Triton gets requests over HTTP, without a
front, for whole answers and for streams of them; the peer is bench.serving.pipeline, which only steps the pipeline and
decodes each answer once. Prompts, lengths of answers and numbers of clients are the same, and rounds take turns. The
medians of the rounds are compared, and the CPU that each process took for a token is printed: the clients share the
cores, and the peer has none.

`--smollm2` measures a model of the shape of SmolLM2 135M, the smallest of specs/ that somebody serves, with random
weights. The demo's model has 2 million parameters and takes 0.2 ms for a token; with it, and with one of 25 million
(`--wide`), the cost of everything but the engine shows.
"""

import argparse
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.cpu import cpu_s, descendants
from bench.pod import ADDRESS, DIRECT, ENVIRONMENTS, REPOSITORY, pod
from bench.serving.streams import Route, play_all
from slipway.tasks.serving.rendered.repository import render

GOAL = 0.9
CLIENTS = (1, 4, 16)
ROUNDS = 5
TOKENS, SPREAD = 96, 32
"""Tokens of an answer on average, and how far those of one client may be from it: clients that all end at once would
leave the pipeline without work at the end of each wave, which those of a service do not."""
NAME = "demo"
FIXTURES = REPOSITORY / "tests" / "fixtures" / "hub"
CHECKPOINT = FIXTURES / "slipway" / "demo-llama" / "v1"
QUESTIONS = FIXTURES / "datasets" / "slipway" / "demo-questions" / "v1" / "eval.jsonl"
MAKE_MODEL = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM

torch.manual_seed(0)
config = AutoConfig.from_pretrained(sys.argv[1], **json.loads(sys.argv[2]))
AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(sys.argv[1])
"""
EXPORT = "tests.local.serving.export_engine"


@dataclass(frozen=True)
class Model:
    """A model by what differs from the demo's config.json.

    A round of few clients has about `round_tokens` tokens, and each client has `least` answers at least.
    """

    differs: Mapping[str, Any] = field(default_factory=dict)
    round_tokens: int = 3000
    least: int = 4

    def answers(self, clients: int) -> int:
        """Answers of each client in a round, so that rounds of few clients are not much shorter."""
        return max(self.least, self.round_tokens // TOKENS // clients + self.least)


DEMO = Model()
WIDE = Model({"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "num_hidden_layers": 8})
SMOLLM2 = Model(
    {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "num_hidden_layers": 30,
        "tie_word_embeddings": True,
        "vocab_size": 49152,
    },
    round_tokens=100,
    least=2,
)


@dataclass(frozen=True)
class Measured:
    """One round: tokens per second, the mean milliseconds of an answer, and CPU microseconds for a token by process."""

    rate: float
    latency_ms: float
    cpu_us: Mapping[str, float]


@dataclass(frozen=True)
class Processes:
    """Processes by what they do."""

    pids: Mapping[str, Sequence[int]]

    def used_s(self) -> dict[str, float]:
        """CPU seconds of each until now."""
        return {name: sum(cpu_s(pid) for pid in pids) for name, pids in self.pids.items()}

    def since(self, before_s: Mapping[str, float], tokens: int) -> dict[str, float]:
        """CPU microseconds for each of the tokens made since then."""
        return {name: (used_s - before_s[name]) / tokens * 1e6 for name, used_s in self.used_s().items()}


def main() -> int:
    """Print a line for each kind of answer and number of clients; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    models = parser.add_mutually_exclusive_group()
    models.add_argument("--wide", dest="model", action="store_const", const=WIDE, help="25 million parameters")
    models.add_argument("--smollm2", dest="model", action="store_const", const=SMOLLM2, help="135 million parameters")
    parser.set_defaults(model=DEMO)
    arguments = parser.parse_args()
    model, rounds = arguments.model, arguments.rounds
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians of {rounds} rounds in")
    print(f"turns; answers of about {TOKENS} tokens; Triton / the pipeline called directly", flush=True)
    met = True
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), model) as triton,
        directly(Path(folder, "engine")) as peer,
    ):
        for clients in arguments.clients:
            asked, answers = load(clients), model.answers(clients)
            kinds: dict[str, list[Measured]] = {"whole answers": [], "streams": [], "directly": []}
            for _ in range(rounds + 1):
                kinds["whole answers"].append(through_triton(triton, asked, answers, stream=False))
                kinds["streams"].append(through_triton(triton, asked, answers, stream=True))
                kinds["directly"].append(through(peer, asked, answers))
            direct = kinds.pop("directly")[1:]  # the first round warms up
            for kind, measured in kinds.items():
                line, reached = compared(measured[1:], direct)
                print(f"{clients:2} clients, {kind}: {line}", flush=True)
                met = met and reached
    return 0


def compared(ours: Sequence[Measured], theirs: Sequence[Measured]) -> tuple[str, bool]:
    """The medians and their ratio, and whether it reaches the goal."""
    rates = median(each.rate for each in ours), median(each.rate for each in theirs)
    over_ms = median(each.latency_ms for each in ours) - median(each.latency_ms for each in theirs)
    reached = rates[0] / rates[1] >= GOAL
    line = f"{rates[0]:.0f} / {rates[1]:.0f} tokens/s = {rates[0] / rates[1]:.2f}, goal {GOAL} "
    cpu = f"us of CPU a token: {_cpu(ours)} / {_cpu(theirs)}"
    return f"{line}{'met' if reached else 'missed'}; {over_ms:.1f} ms more for a request; {cpu}", reached


def _cpu(rounds: Sequence[Measured]) -> str:
    return ", ".join(f"{name} {median(each.cpu_us[name] for each in rounds):.0f}" for name in rounds[0].cpu_us)


def load(clients: int) -> list[dict[str, Any]]:
    """Prompt and length of the answers of each client."""
    prompts = [json.loads(line)["prompt"] for line in QUESTIONS.read_text().splitlines()[:clients]]
    lengths = [TOKENS + (7 * number % 17 - 8) * SPREAD // 8 if clients > 1 else TOKENS for number in range(clients)]
    return [{"prompt": prompt, "tokens": tokens} for prompt, tokens in zip(prompts, lengths, strict=True)]


def through_triton(triton: Processes, asked: Sequence[Mapping[str, Any]], answers: int, *, stream: bool) -> Measured:
    """A round of Triton: each client has so many answers."""

    def body(client: Mapping[str, Any]) -> dict[str, Any]:
        tokens = client["tokens"]
        return {"text_input": client["prompt"], "max_tokens": tokens, "min_tokens": tokens, "stream": stream}

    path = f"/v2/models/{NAME}/generate_stream"
    routes = [Route(ADDRESS, DIRECT["http"], path, body(client)) for client in asked]
    before_s = triton.used_s()
    played = play_all(routes, answers=answers)
    cpu_us = triton.since(before_s, played.tokens)
    return Measured(played.rate, sum(played.latencies_ms) / len(played.latencies_ms), cpu_us)


def through(peer: subprocess.Popen[str], asked: Sequence[Mapping[str, Any]], answers: int) -> Measured:
    """A round of the pipeline itself.

    Raises:
        SystemExit: its process ended.
    """
    assert peer.stdin is not None
    assert peer.stdout is not None
    process = Processes({"pipeline": [peer.pid]})
    before_s = process.used_s()
    print(json.dumps({"clients": asked, "answers": answers}), file=peer.stdin, flush=True)
    line = peer.stdout.readline()
    if not line:
        raise SystemExit(f"bench.serving.pipeline ended with {peer.wait()}")
    found = json.loads(line)
    latencies_ms, tokens = found["latencies_ms"], found["tokens"]
    mean_ms = sum(latencies_ms) / len(latencies_ms)
    return Measured(tokens / found["seconds"], mean_ms, process.since(before_s, tokens))


def make_repository(folder: Path, model: Model) -> None:
    """Build the engine as the steps do, in `folder`/engine, and render its repository in `folder`/pod/repository."""
    engine, repository, checkpoint = folder / "engine", folder / "pod" / "repository", CHECKPOINT
    if model.differs:
        checkpoint = Path(shutil.copytree(CHECKPOINT, folder / "checkpoint"))
        python("-c", MAKE_MODEL, str(checkpoint), json.dumps(model.differs))
        enlarge(checkpoint / "tokenizer.json", model.differs.get("vocab_size", 0))
    python("-m", EXPORT, str(checkpoint), str(engine))
    repository.mkdir(parents=True)
    values = json.loads((engine / "template_values.json").read_text())
    render(REPOSITORY / "model_repository_templates", values["kind"], values, repository)
    shutil.copytree(engine, repository / NAME / "1" / values["engine_folder"])


@contextmanager
def served(folder: Path, model: Model) -> Iterator[Processes]:
    """Build the engine and serve it until the block ends."""
    make_repository(folder, model)
    with pod(folder / "pod", {NAME: None}) as started:
        server = started["triton"].pid
        below = descendants(server)
        engine_process = [pid for pid in below if b"engine_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        others = [server, *(pid for pid in below if pid not in engine_process)]
        yield Processes({"engine": engine_process, "Triton and its stubs": others, "clients": [os.getpid()]})


def enlarge(tokenizer: Path, size: int) -> None:
    """Fill a tokenizer.json up to `size` tokens with pairs of those it has. No text becomes any of the new ones."""
    document = json.loads(tokenizer.read_text())
    vocabulary = document["model"]["vocab"]
    special = {each["content"] for each in document["added_tokens"]}
    plain = [token for token in vocabulary if token not in special]
    pairs = (first + second for first in plain for second in plain)
    new = (pair for pair in dict.fromkeys(pairs) if pair not in vocabulary)
    numbers = range(max(vocabulary.values()) + 1, size)
    vocabulary.update(dict(zip(list(itertools.islice(new, len(numbers))), numbers, strict=True)))
    tokenizer.write_text(json.dumps(document, ensure_ascii=False))


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
    """Run bench.serving.pipeline until the block ends."""
    command = [str(ENVIRONMENTS / "triton" / "bin" / "python"), "-m", "bench.serving.pipeline", str(engine)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as peer:
        try:
            yield peer
        finally:
            peer.terminate()


if __name__ == "__main__":
    sys.exit(main())
