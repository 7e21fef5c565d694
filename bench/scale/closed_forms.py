"""The simulation's queues against formulas: what a reader can trust it by."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import simpy

from bench.scale.day import Setup, Simulation
from bench.scale.stations import Line, Process, Station

CUSTOMERS = 60_000


@dataclass(frozen=True)
class Compared:
    """One figure, simulated and by its formula."""

    what: str
    simulated: float
    formula: float

    @property
    def off(self) -> float:
        """How far apart they are, as a share of the formula's."""
        return abs(self.simulated / self.formula - 1)


def erlang_c(servers: int, load: float) -> float:
    """The probability of waiting in M/M/c at an offered load of `load` < `servers` (Erlang's C formula)."""
    blocked = 1.0
    for number in range(1, servers + 1):  # Erlang's B formula, by recursion
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def compared(seed: int) -> Iterator[Compared]:
    """Mean waits of three queues, and the use of Airflow's CPU in a day of one site."""
    mean_s, servers, load = 10.0, 4, 2.4
    formula = erlang_c(servers, load) * mean_s / (servers - load)
    yield Compared("M/M/4 at 60 %, Line: mean wait, s", wait_s(seed, servers, load, mean_s, line=True), formula)
    yield Compared("M/M/4 at 60 %, Station: mean wait, s", wait_s(seed, servers, load, mean_s, line=False), formula)
    load = 0.5
    formula = load * mean_s / (2 * (1 - load))  # Pollaczek and Khinchine, of constant service
    yield Compared(
        "M/D/1 at 50 %, Line: mean wait, s", wait_s(seed, 1, load, mean_s, line=True, constant=True), formula
    )
    setup = Setup(models=200, releases=400, clusters=10)
    simulation = Simulation(setup, seed)
    day = simulation.run()
    used = simulation.cores.meter.mean(simulation.cores.servers, day.ended_s + 600) * (day.ended_s + 600)
    n, stored = setup.numbers, setup.numbers["stored_share"]
    released = len(day.totals) + day.given_up
    # plan, 3 that measure and, unless refused, promote have pods, and so do 5 stages that are not stored: two processes
    pods = 4 + (1 - n["refused_share"]) + 5 * (1 - stored)
    others = 5 * stored + 2 + (1 - n["refused_share"]) + 2
    expected = released * (2 * pods + others) * (n["process_s"] + n["store_client_s"]) / simulation.cores.servers
    yield Compared("one site's day, Airflow's CPU: busy seconds of a core", used, expected)


def wait_s(
    seed: int,
    servers: int,
    load: float,
    mean_s: float,
    *,
    line: bool,
    constant: bool = False,
    customers: int = CUSTOMERS,
) -> float:
    """Mean wait of `customers` who come at random, of whom each stays for `mean_s` on average."""
    source, env = random.Random(seed), simpy.Environment()  # noqa: S311 - a simulation
    queue: Line | Station = Line(env, servers) if line else Station(env, servers)
    waits: list[float] = []

    def customer(seconds: float) -> Process:
        if isinstance(queue, Line):
            waits.append(queue.enter(seconds))
            return
        since, waited = yield from queue.take()
        waits.append(waited)
        yield env.timeout(seconds)
        queue.give(since)

    def arrivals() -> Process:
        for _ in range(customers):
            yield env.timeout(source.expovariate(load / mean_s))
            env.process(customer(mean_s if constant else source.expovariate(1 / mean_s)))

    env.process(arrivals())
    env.run()
    return math.fsum(waits) / len(waits)
