"""One day of releases over Airflow, the clusters' GPUs and the object store, as discrete events."""

import math
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import simpy

from bench.scale.numbers import PRODUCTS, values
from bench.scale.stations import Line, Meter, Process, Station

DAY_S, HOUR_S = 86400.0, 3600.0
WORKING_H = (9, 18)
TRIES = 3  # dags/release.py
RETRY_S = 15.0
TASKS = 15
STILL_RUN = 3
"""Of a run with nothing to do: plan, roll-back and released, when the others are skipped at once."""
GPU_STEP, GPU_CANDIDATE, IMPORT = "GPU for a step", "GPU for the candidate", "time to import a DAG file"
CAUSES = ("spec is read", "scheduler", "task slots", "Airflow's CPU", "API server", GPU_STEP, GPU_CANDIDATE)


@dataclass(frozen=True)
class Setup:
    """What is simulated."""

    models: int
    releases: int
    """In a day."""
    clusters: int = 1
    checks: int = 0
    """Runs by schedule in a day that find nothing to do."""
    checks_spread: bool = False
    """Over the day; otherwise all at midnight."""
    schedulers: int = 1
    deferrable: bool = True
    preimported: bool = False
    skipped_at_once: bool = False
    slices: int = 1
    mapped: bool = False
    """One DAG whose runs are mapped over the models."""
    last_first: bool = False
    """Tasks nearest to the end of their run get a free slot first; otherwise those nearest to the start do."""
    pools: bool = False
    """Steps wait for GPUs in Airflow, those that are nearest to their end first, and leave room for one candidate."""
    gpus: float = 1.0
    """Free GPUs, as a multiple of PRODUCTS."""
    numbers: Mapping[str, float] = field(default_factory=values)


@dataclass
class Day:
    """What was seen."""

    waits: dict[str, list[float]] = field(default_factory=lambda: {cause: [] for cause in CAUSES})
    totals: list[float] = field(default_factory=list)
    """Seconds of the releases that ended in promote or a refusal."""
    given_up: int = 0
    """Releases that failed because no GPU came in time."""
    checked: list[float] = field(default_factory=list)
    peak: dict[str, float] = field(default_factory=dict)
    """Share of its capacity that a resource used in its busiest ten minutes."""
    mean: dict[str, float] = field(default_factory=dict)
    ended_s: float = 0.0


def parsing(setup: Setup) -> tuple[float, float]:
    """Seconds to import the slowest DAG file, and seconds from one reading of all files to the next."""
    n = setup.numbers
    models = 1 if setup.mapped else math.ceil(setup.models / setup.slices)
    files = [
        models * (n["parse_release_s"] + n["serialize_s"]),
        models * n["parse_broken_s"],
        models * n["parse_rollback_s"],
    ]
    reading = max(*files, sum(files) / n["parsing_processes"])
    slowest = models * max(n["parse_release_s"], n["parse_broken_s"])
    return slowest, max(n["parse_interval_s"], reading + 2 * models * n["sync_s"])


class Simulation:
    """A day, and the time after it until every release has ended."""

    def __init__(self, setup: Setup, seed: int) -> None:
        self.setup, self.n, self.random = setup, setup.numbers, random.Random(seed)  # noqa: S311 - a simulation
        self.env = env = simpy.Environment()
        n = self.n
        self.scheduler = Line(env, setup.schedulers)
        self.slots = Station(env, int(n["parallelism"]) * setup.schedulers)
        self.cores = Line(env, int(n["scheduler_cores"]) * setup.schedulers)
        self.api = Line(env, int(n["api_cores"]))
        self.gpus, self.pools = {}, {}
        for cluster in range(setup.clusters):
            for product in PRODUCTS:
                units = max(1, int(product.free_gpus * setup.gpus) // product.gpus)
                self.gpus[cluster, product.name] = Station(env, units)
                self.pools[cluster, product.name] = Station(env, max(1, units - 1))
        self.puts, self.gets, self.statements, self.kube = Meter(), Meter(), Meter(), Meter()
        self.day = Day()
        self.import_s, self.cycle_s = parsing(setup)
        self.models_of_a_slice = 1 if setup.mapped else math.ceil(setup.models / setup.slices)

    def run(self) -> Day:
        """Simulate until the last release has ended."""
        for at in self._arrivals():
            self.env.process(self._release(at))
        for number in range(self.setup.checks):
            self.env.process(self._check(number * DAY_S / self.setup.checks if self.setup.checks_spread else 0.0))
        self.env.run()
        self.day.ended_s = self.env.now
        self._measure()
        return self.day

    def _arrivals(self) -> list[float]:
        """Times of a Poisson number of releases, with most of them in working hours."""
        count = _poisson(self.random, self.setup.releases)
        first, last = WORKING_H
        share = self.n["working_share"]
        times = []
        for _ in range(count):
            if self.random.random() < share:
                times.append(HOUR_S * self.random.uniform(first, last))
            else:
                other = self.random.uniform(0, 24 - (last - first))
                times.append(HOUR_S * (other if other < first else other + last - first))
        return sorted(times)

    def _took(self, mean_s: float) -> float:
        """A lognormal duration."""
        variance = math.log1p(self.n["spread"] ** 2)
        return mean_s * self.random.lognormvariate(-variance / 2, math.sqrt(variance))

    def _release(self, at_s: float) -> Process:
        """One release, from its trigger to its end."""
        yield self.env.timeout(at_s)
        n, env = self.n, self.env
        product = self.random.choices(PRODUCTS, [each.share for each in PRODUCTS])[0]
        place = self.random.randrange(self.setup.clusters), product.name
        waits: dict[str, float] = defaultdict(float)
        stored = self.random.random() < n["stored_share"]
        if self.random.random() < n["edited_share"]:
            waits["spec is read"] = self.random.uniform(0, self.cycle_s)
            yield env.timeout(waits["spec is read"])
        small, gb = product.weights_gb / (4 if product.compiled else 1), product.weights_gb
        making = [
            ("download", self._took(gb / n["transfer_gb_s"]), False),
            ("quantize", self._took(gb * n["quantize_s_gb"]), product.compiled),
            ("build", self._took(gb * n["build_s_gb"]), product.compiled),
            ("assemble", self._took(n["assemble_s"]), True),
            ("publish", self._took(gb / n["transfer_gb_s"] / 4), False),
        ]
        if not product.compiled:  # weights keep their format, and pass as files
            making[1:3] = [(name, self._took(gb / n["transfer_gb_s"]), False) for name in ("quantize", "build")]
        yield from self._pod(waits, 0, self._took(n["plan_s"]))
        made, began = True, env.now
        for number, (_, seconds, on_gpu) in enumerate(making, 1):
            if stored:
                yield from self._task(waits, number)
            else:
                made = yield from self._pod(waits, number, seconds, place if on_gpu else None)
                if not made:
                    break
        if made and not stored:
            self._transfers(gb, small, env.now - began)
        made = made and (yield from self._served(waits, place, small))
        for number in (13, 14):  # roll-back and released
            yield from self._task(waits, number)
        if made:
            for cause, seen in self.day.waits.items():
                seen.append(waits[cause])
            self.day.totals.append(env.now - at_s)
        else:
            self.day.given_up += 1

    def _served(self, waits: dict[str, float], place: tuple[int, str], gb: float) -> Process:
        """From check-network to promote; the candidate has GPUs from roll-out on."""
        n, env = self.n, self.env
        yield from self._task(waits, 6)  # check-network, which needs no pod on one node
        gpus = self.gpus[place]
        taken = None
        yield from self._task(waits, 7)
        for _ in range(TRIES):
            taken, waited = yield from gpus.take(0, n["schedule_budget_s"])
            waits[GPU_CANDIDATE] += waited
            if taken is not None:
                break
            yield env.timeout(RETRY_S)
            yield from self._task(waits, 7)
        if taken is None:
            return False
        self.gets.add(env.now, gb * 1e9 / n["part_bytes"])
        yield env.timeout(self._took(n["node_s"] + n["ready_s"]))
        for number in (8, 9, 10):  # smoke-test, benchmark, gate
            yield from self._pod(waits, number, self._took(n["measure_s"] / 3))
        if self.random.random() >= n["refused_share"]:
            yield from self._task(waits, 11)  # approval
            yield from self._pod(waits, 12, self._took(n["pod_s"]))
        gpus.give(taken)  # the live release's, once the candidate has its place
        return True

    def _pod(
        self, waits: dict[str, float], number: int, seconds: float, place: tuple[int, str] | None = None
    ) -> Process:
        """A task with a pod; whether it got its GPUs."""
        n, env = self.n, self.env
        for _ in range(TRIES):
            held = pooled = None
            if place and self.setup.pools:
                pooled, waited = yield from self.pools[place].take(-number)
                waits[GPU_STEP] += waited
            slot = yield from self._process(waits, number)
            if self.setup.deferrable:
                self.slots.give(slot)
            if place:
                held, waited = yield from self.gpus[place].take(0, n["schedule_budget_s"])
                waits[GPU_STEP] += waited
            if held is not None or not place:
                started = env.now
                yield env.timeout((n["node_s"] if place else n["pod_s"]) + seconds)
                self.kube.add(started, n["kube_calls"])
                self.kube.spread(started, env.now, 1 / n["kube_poll_s"])
                yield env.timeout(self.random.uniform(0, n["notice_s"]))
            if held is not None and place:
                self.gpus[place].give(held)
            if pooled is not None and place:
                self.pools[place].give(pooled)
            if self.setup.deferrable:
                slot = yield from self._process(waits, number)
            self.slots.give(slot)
            if held is not None or not place:
                return True
            yield env.timeout(RETRY_S)
        return False

    def _task(self, waits: dict[str, float], number: int) -> Process:
        """A task without a pod."""
        slot = yield from self._process(waits, number)
        self.slots.give(slot)

    def _process(self, waits: dict[str, float], number: int) -> Process:
        """Schedule a task and run the start of its process; returns its slot."""
        n = self.n
        self.statements.add(self.env.now, n["schedule_statements"] + n["api_statements"])
        waits["scheduler"] += (wait_s := self.scheduler.enter(n["schedule_s"]))
        yield self.env.timeout(wait_s + n["schedule_s"] + self.random.uniform(0, n["idle_sleep_s"]))
        slot, waited = yield from self.slots.take(-number if self.setup.last_first else number)
        waits["task slots"] += waited
        process_s = n["preimported_s"] if self.setup.preimported else n["process_s"] + n["store_client_s"]
        cpu_s, api_s = self.cores.enter(process_s), self.api.enter(n["api_s"])
        waits["Airflow's CPU"] += cpu_s
        waits["API server"] += max(0.0, api_s - cpu_s)  # a process asks it while it runs
        yield self.env.timeout(max(cpu_s + process_s, api_s + n["api_s"]))
        return slot

    def _check(self, at_s: float) -> Process:
        """A run by schedule that finds nothing to do: plan's pod, and a task's process for each other step."""
        yield self.env.timeout(at_s)
        waits: dict[str, float] = defaultdict(float)
        yield from self._pod(waits, 0, self._took(self.n["plan_s"]))
        for number in range(1, STILL_RUN if self.setup.skipped_at_once else TASKS):
            yield from self._task(waits, number)
        self.day.checked.append(self.env.now - at_s)

    def _transfers(self, gb: float, small: float, seconds: float) -> None:
        """Requests to the object store of one release's stages, over the time that they take."""
        now, part, copy = self.env.now, 1e9 / self.n["part_bytes"], 1e9 / self.n["copy_bytes"]
        # download writes the weights; quantize reads them and writes smaller ones; build reads and writes those; and
        # assemble reads them. upload_file's parts are twice as large
        self.puts.spread(now - seconds, now, (gb * part + 2 * small * part / 2 + small * copy) / max(seconds, 1.0))
        self.gets.spread(now - seconds, now, (gb + 2 * small) * part / max(seconds, 1.0))

    def _measure(self) -> None:
        """Each resource's share of its capacity."""
        n, day = self.n, self.day
        meters: dict[str, tuple[Meter, float]] = {
            "scheduler": (self.scheduler.meter, self.scheduler.servers),
            "task slots": (self.slots.meter, self.slots.servers),
            "Airflow's CPU": (self.cores.meter, self.cores.servers),
            "API server": (self.api.meter, self.api.servers),
            "Airflow's database": (self.statements, n["database_cores"] / n["statement_s"]),
            "object store, writes": (self.puts, n["put_limit"]),
            "object store, reads": (self.gets, n["get_limit"]),
            "a cluster's API": (self.kube, n["kube_limit"] * self.setup.clusters),
        }
        for product in PRODUCTS:
            total, servers = Meter(), 0
            for (_, name), station in self.gpus.items():
                if name == product.name:
                    servers += station.servers
                    for at, amount in station.meter.bins.items():
                        total.bins[at] += amount
            meters[f"GPUs: {product.name}"] = total, servers
        sync = 2 * n["sync_statements"] * self.models_of_a_slice * self.setup.slices / self.cycle_s
        for name, (meter, per_s) in meters.items():
            extra = sync / per_s if meter is self.statements else 0.0
            day.peak[name], day.mean[name] = meter.peak(per_s) + extra, meter.mean(per_s, DAY_S) + extra
        for figures in (day.peak, day.mean):
            figures[IMPORT] = self.import_s / n["import_timeout_s"]


def _poisson(source: random.Random, mean: float) -> int:
    """A Poisson number, by exponential gaps."""
    count, at = 0, source.expovariate(1.0)
    while at < mean:
        count, at = count + 1, at + source.expovariate(1.0)
    return count
