"""`python -m bench.serving.openai [NAME]`: what OpenAI's API costs, against Triton's generate_stream at the same front.

Without NAME: a Triton, front and API of its own, and a model that answers TOKENS_PER_S tokens a second to each client,
whatever the load, as a GPU does below its limit. What is measured then is the API, not who gets the CPU. With NAME: the
live model of a stack (`make up`), which computes on the CPUs that the API needs too.

Rounds over both routes take turns, and the medians of ROUNDS pairs are compared. The goals are those of
docs/decisions/0022: GOAL_MS more until an answer begins, and GOAL_RATE of the tokens per second.
"""

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles

from bench.cpu import children, cpu_s
from bench.pod import ADDRESS, FRONT, pod
from bench.serving.paced import NAME, PACED, TOKENS_PER_S
from bench.serving.streams import Round, Route, play
from slipway.cli.settings import Settings

ROUNDS = 5
CONCURRENCIES = (1, 16, 64)
GOAL_MS, GOAL_RATE = 2.0, 0.9
REQUESTS = 100
"""One-token requests of a round, one after the other."""
TOKENS = 100
QUESTION = "Tell me everything."
SAMPLING = {"temperature": 8.0, "seed": 3}
"""The demo's model does not end an answer early with these."""


@dataclass(frozen=True)
class Target:
    """A model, asked by both routes.

    Attributes:
        cpu_s: CPU seconds that each process has used, by name; empty where they are not this benchmark's.
        spread_s: time over which the clients of a round begin.
    """

    direct: Route
    openai: Route
    answers: Mapping[int, int]
    cpu_s: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    spread_s: float = 0.0

    def with_tokens(self, tokens: int) -> "Target":
        """The same with another length of answers."""
        routes = [replace(route, body={**route.body, "max_tokens": tokens}) for route in (self.direct, self.openai)]
        return replace(self, direct=routes[0], openai=routes[1])


@dataclass
class Pairs:
    """Rounds over both routes, in turns, and the CPU seconds of each process, OpenAI's route first."""

    direct: list[Round] = field(default_factory=list)
    openai: list[Round] = field(default_factory=list)
    cpu_s: tuple[dict[str, float], dict[str, float]] = field(default_factory=lambda: ({}, {}))

    def medians(self, value: Callable[[Round], float]) -> tuple[float, float]:
        """The median of each route, OpenAI's first."""
        return median(map(value, self.openai)), median(map(value, self.direct))

    def cpu(self) -> str:
        """What each process took of a core on both routes, and the tokens a second that a core allows the API."""
        if not self.cpu_s[0]:
            return ""
        seconds = [sum(each.seconds for each in rounds) for rounds in (self.openai, self.direct)]
        shares = [
            f"{name} {self.cpu_s[0][name] / seconds[0]:.2f} / {self.cpu_s[1][name] / seconds[1]:.2f}"
            for name in self.cpu_s[0]
        ]
        per_token = self.cpu_s[0]["API"] / sum(each.tokens for each in self.openai)
        tokens = f"{per_token * 1e6:.0f} us of the API for a token, so {1 / per_token:.0f} tokens/s for each core"
        return f"; cores in use: {', '.join(shares)}; {tokens}"


def main(arguments: list[str]) -> int:
    """Print a line for each comparison, with its goal."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print("usage: python -m bench.serving.openai [NAME]", file=sys.stderr)
        return 65
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians of {ROUNDS} pairs of")
    print("rounds that take turns, both through the front: OpenAI's API / Triton's generate_stream")
    if arguments:
        return report(live(arguments[0]))
    with tempfile.TemporaryDirectory() as folder, pod(Path(folder), {NAME: PACED}, openai=()) as processes:
        print(f"a model with {TOKENS_PER_S} tokens/s for each client, answers of {TOKENS} tokens")
        routes = routes_of(ADDRESS, FRONT["http"], NAME)
        once = dict.fromkeys(CONCURRENCIES, 1)
        cpu = {"client": cpu_of(os.getpid()), "front": cpu_of(processes["front"].pid)}
        cpu |= {"API": cpu_of(processes["openai"].pid), "Triton": cpu_of(processes["triton"].pid)}
        return report(Target(*routes, once, cpu, spread_s=1 / TOKENS_PER_S))


def live(name: str) -> Target:
    """The live model of the stack that the environment names."""
    address = Settings.resolve(dict(os.environ)).cluster().live_address(name)
    if address is None:
        raise SystemExit(f"{name} is not live; release it first")
    return Target(*routes_of(address.host, address.ports["http"], name), {1: 12, 16: 4, 64: 2})


def routes_of(host: str, port: int, name: str) -> tuple[Route, Route]:
    """The same question by Triton's route and by OpenAI's."""
    common = {"max_tokens": TOKENS, "stream": True, **SAMPLING}
    chat = {"model": name, "messages": [{"role": "user", "content": QUESTION}]}
    usage = {"stream_options": {"include_usage": True}}
    return (
        Route(host, port, f"/v2/models/{name}/generate_stream", {"text_input": QUESTION, **common}),
        Route(host, port, "/v1/chat/completions", {**chat, **common, **usage}),
    )


def report(target: Target) -> int:
    """Measure and print."""
    one_token = replace(target.with_tokens(1), spread_s=0.0)
    single = measure(one_token, clients=1, answers=REQUESTS)
    ours, theirs = single.medians(lambda each: each.seconds * 1000 / REQUESTS)
    verdict(f"a request of one token: {ours:.2f} / {theirs:.2f} ms", ours - theirs <= GOAL_MS, "ms")
    for clients in CONCURRENCIES:
        pairs = measure(target, clients=clients, answers=target.answers[clients])
        rate, direct_rate = pairs.medians(lambda each: each.rate)
        print(f"{clients:2} clients{details(pairs)}")
        verdict(
            f"  {rate:.0f} / {direct_rate:.0f} tokens/s = {rate / direct_rate:.2f}",
            rate / direct_rate >= GOAL_RATE,
            "rate",
        )
    return 0


def verdict(line: str, met: bool, goal: str) -> None:
    """Print a comparison with its goal."""
    goals = {"ms": f"at most {GOAL_MS:g} ms more", "rate": f"at least {GOAL_RATE:g}"}
    print(f"{line}; goal {goals[goal]}: {'met' if met else 'missed'}")


def details(pairs: Pairs) -> str:
    """First tokens, gaps between reads, and what the API took of the CPU."""
    first, direct_first = pairs.medians(lambda each: median(each.first_ms))
    gap, direct_gap = pairs.medians(lambda each: quantiles(each.gaps_ms, n=100)[98])
    return f": first token {first:.1f} / {direct_first:.1f} ms, gap p99 {gap:.0f} / {direct_gap:.0f} ms{pairs.cpu()}"


def measure(target: Target, *, clients: int, answers: int) -> Pairs:
    """Rounds over both routes in turns, after one of each that does not count."""
    pairs = Pairs()
    for route in (target.direct, target.openai):
        play(route, clients=1, answers=1)
    for _ in range(ROUNDS):
        for rounds, route, used in (
            (pairs.direct, target.direct, pairs.cpu_s[1]),
            (pairs.openai, target.openai, pairs.cpu_s[0]),
        ):
            before = {name: spent() for name, spent in target.cpu_s.items()}
            rounds.append(play(route, clients=clients, answers=answers, spread_s=target.spread_s))
            for name, spent in target.cpu_s.items():
                used[name] = used.get(name, 0.0) + spent() - before[name]
    return pairs


def cpu_of(process: int) -> Callable[[], float]:
    """CPU seconds of a process and of its children but this benchmark's own, as a function."""

    def used() -> float:
        return sum(cpu_s(pid) for pid in (process, *([] if process == os.getpid() else children(process))))

    return used


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
