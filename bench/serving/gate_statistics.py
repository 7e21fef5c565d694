"""Error rates of the gate's comparison with live, by simulation: false pass, false fail, and inconclusive.

`.slipway/envs/tasks/bin/python -m bench.serving.gate_statistics [--trials N]`. It runs the gate's own code over made-up
latencies: lognormal with a spread of 35 %, independent or autocorrelated (AR(1) of the logarithm), against a limit of
1.10 of live. The peer is the bootstrap of single requests.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import signal

from slipway.tasks.adapters.judge import statistics
from slipway.tasks.contracts.measured.gate import LINE_ERROR
from slipway.tasks.contracts.measured.looks import block_count, blocks, looks, planned
from slipway.tasks.contracts.spec.gate import Benchmark

SPREAD, LIMIT, WORSE = 0.35, 1.10, 1.25
SIZES = (64, 256, 1024)
SEQUENTIAL = Benchmark(requests=SIZES[0], max_requests=SIZES[-1])
PEER_RESAMPLES = 400

Interval = tuple[int, float, float]
"""Requests of each target, and the ends of the interval."""


def latencies(generator: np.random.Generator, count: int, rho: float) -> Any:
    """Lognormal numbers whose logarithms follow an AR(1) process with correlation `rho`, from its stationary state."""
    sigma = math.sqrt(math.log(1 + SPREAD**2))
    noise = generator.standard_normal(count)
    noise[1:] *= math.sqrt(1 - rho**2)
    return np.exp(sigma * signal.lfilter([1], [1, -rho], noise))


def of_requests(mine: Any, theirs: Any, quantile: float, generator: np.random.Generator) -> Iterator[Interval]:
    """The percentile interval from resampled single requests."""
    count = len(mine)
    drawn = (each[generator.integers(count, size=(PEER_RESAMPLES, count))] for each in (mine, theirs))
    ratios = np.divide(*(np.quantile(each, quantile, axis=1) for each in drawn))
    low, high = np.quantile(ratios, [LINE_ERROR / 2, 1 - LINE_ERROR / 2])
    yield count, low, high


def of_blocks(mine: Any, theirs: Any, settings: Benchmark, quantile: float) -> Iterator[Interval]:
    """The gate's intervals at every look."""
    for look in looks(settings, len(mine)):
        number = block_count(look.requests)
        cut, baseline = (blocks(each[: look.requests].tolist(), number) for each in (mine, theirs))
        ratio = statistics.quantile_ratio(cut, baseline, quantile, error=look.error)
        assert ratio is not None
        yield look.requests, ratio[1], ratio[2]


def outcome(intervals: Sequence[Interval], true_ratio: float) -> tuple[str, int]:
    """The verdict at the first look that decides, and its requests. A candidate's ratio only scales the interval."""
    for requests, low, high in intervals:
        if high * true_ratio <= LIMIT:
            return "passed", requests
        if low * true_ratio > LIMIT:
            return "failed", requests
    return "inconclusive", intervals[-1][0]


def row(name: str, trials: Sequence[Sequence[Interval]]) -> str:
    """A line of the table."""
    at_limit = [outcome(each, LIMIT)[0] for each in trials]
    equal = [outcome(each, 1.0) for each in trials]
    worse = [outcome(each, WORSE) for each in trials]

    def percent(verdict: str, verdicts: Sequence[str]) -> str:
        return f"{100 * verdicts.count(verdict) / len(verdicts):7.1f} %"

    cells = [percent("passed", at_limit), percent("failed", at_limit)]
    for outcomes in (equal, worse):
        mean = sum(requests for _, requests in outcomes) / len(outcomes)
        cells += [percent("inconclusive", [verdict for verdict, _ in outcomes]), f"{mean:9.0f}"]
    return f"{name:<26}" + "".join(cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=250)
    count, began = parser.parse_args().trials, time.monotonic()
    generator = np.random.default_rng(statistics.SEED)
    print(
        f"{count} trials: a rate of 2.5 % is known within {196 * math.sqrt(0.025 * 0.975 / count):.1f} points. "
        f"Looks of the sequential method: {planned(SEQUENTIAL)} requests of each target"
    )
    for rho in (0.0, 0.6):
        for quantile in (0.5, 0.95):
            print(f"\np{quantile * 100:g}, autocorrelation {rho:g}")
            print(f"{'':<26}      at the limit      as fast as live      {WORSE:g} of live")
            print(f"{'':<26}    pass     fail  inconcl. requests  inconcl. requests")
            methods: dict[str, list[list[Interval]]] = {}
            for _ in range(count):
                pair = latencies(generator, SIZES[-1], rho), latencies(generator, SIZES[-1], rho)
                for size in SIZES:
                    mine, theirs = (each[:size] for each in pair)
                    single = list(of_requests(mine, theirs, quantile, generator))
                    methods.setdefault(f"{size}, single requests", []).append(single)
                    fixed = list(of_blocks(mine, theirs, Benchmark(requests=size), quantile))
                    methods.setdefault(f"{size}, blocks", []).append(fixed)
                methods.setdefault("sequential, blocks", []).append(list(of_blocks(*pair, SEQUENTIAL, quantile)))
            for name, trials in methods.items():
                print(row(name, trials), flush=True)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
