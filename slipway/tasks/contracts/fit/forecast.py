"""How long a plan will take and what it will cost, from what the same steps took before. Pure arithmetic.

Times of stages grow with the model: a stage that took 60 s for 1 GB is expected to take 120 s for 2 GB. The time of
download grows with the bytes that come from the Hub; copies within the store count as none. Times of the other steps
depend on the spec's own settings and are taken as they were.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from pydantic import Field

from slipway.tasks.contracts.base import Contract
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.fit.step_kinds import CANDIDATE_STEPS, STEP_KINDS, steps_of
from slipway.tasks.contracts.fit.surge import Interruption, handed_over, shares
from slipway.tasks.contracts.kubernetes_text import ReleaseId
from slipway.tasks.contracts.measured.evidence import Line
from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.site.site import Prices, quantity
from slipway.tasks.contracts.spec.gate import Gate
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.artifact import STAGES
from slipway.tasks.contracts.stored.bytes_to_move import BytesToMove
from slipway.tasks.contracts.stored.channel import ReleaseState
from slipway.tasks.contracts.stored.plan import Plan
from slipway.tasks.contracts.stored.release import Release

HOUR_S = 3600.0
NEEDED_REACH = (1.96 + 0.84) / 1.96
"""Half an interval of 95 %, and the way to it that 4 of 5 estimates stay within, in units of the first."""
FAILED_STATES: frozenset[ReleaseState | None] = frozenset({"refused", "rolled-back"})
SAME_SIZE = 2.0
"""A model with more times the bytes of another, or fewer, is of another size: time in proportion is a guess."""
WHOLE_NUMBERS_FROM = 10
NAMED_WITH_VALUES = (
    *("engine.kind", "engine.gpu", "engine.tensor_parallel", "engine.pipeline_parallel"),
    *("quantization.format", "serving.replicas.min", "rollout.strategy", "rollout.bake_s"),
)
NAMED_ALONE = ("quantization.calibration", "gate.quality", "gate.benchmark", "gate.harness")
"""Fields of a spec that times depend on; the second ones are too long to print."""


@dataclass(frozen=True)
class PastTimes:
    """What the steps of an earlier release took."""

    release_id: str
    download_bytes: int
    seconds: Mapping[Step, float] = field(default_factory=dict)
    downloaded_bytes: int | None = None
    """What its download brought in its time, without files that the store had; None: unknown, taken as all."""
    state: ReleaseState | None = None
    differs: tuple[str, ...] = ()
    """How it differs from the plan's release in what times depend on."""


class StepForecast(Contract):
    """One step that is going to run."""

    step: Step
    seconds: float | None = Field(
        ge=0, description="expected time in its pod; null: no earlier run says how long it takes"
    )
    gpus: int = Field(ge=0, description="of its pod")
    gpu_hours: float | None = Field(default=None, ge=0, description="of its pod; null: it has no time")


def _total(fields: dict[str, Any]) -> float | None:
    times = [each.seconds for each in fields.get("steps", ()) if each.seconds is not None]
    return sum(times) if times else None


class Forecast(Contract):
    """Time and cost of a plan's steps. Waiting for nodes, images and people is not in it."""

    of: ReleaseId | None = Field(description="the release whose times were taken; null: there is none")
    state: ReleaseState | None = Field(default=None, description="what became of that release")
    differs: tuple[str, ...] = Field(
        default=(), description="how it differs from this one in what times depend on, so that they may be far off"
    )
    steps: tuple[StepForecast, ...] = Field(description="the steps that are going to run, in order")
    seconds: float | None = Field(
        default_factory=_total, ge=0, description="of all steps with a time; null: no step has one"
    )
    gpu: str | None = Field(
        default=None, description="product of all GPUs below and of the steps; null: none is needed"
    )
    candidate_gpus: int = Field(ge=0, description="GPUs of the candidate's pods, from roll-out to promote")
    shared_gpus: int = Field(
        default=0,
        ge=0,
        description="of these, GPUs that the live release gives up for the candidate (rollout.surge none): they are "
        "paid for without the release too, so no hours or cost count them",
    )
    candidate_gpu_hours: float | None = Field(
        default=None,
        ge=0,
        description="of the candidate's other GPUs, while steps with a time run; null: none of these has one",
    )
    gpu_hours: float | None = Field(
        ge=0,
        description="that the release adds: of the steps with a time, and candidate_gpu_hours beside them; null: no "
        "step has a time",
    )
    cost: float | None = Field(
        default=None, ge=0, description="of what the release adds; null: the site has no price for it"
    )
    currency: str | None = None

    @property
    def unknown(self) -> tuple[Step, ...]:
        """Steps without a time."""
        return tuple(each.step for each in self.steps if each.seconds is None)


class NeededRequests(Contract):
    """How many requests a comparison with live will need."""

    what: str = Field(description="the metric with quantile and level, as text")
    limit: float
    requests: int = Field(ge=1, description="of each target, so that 4 of 5 candidates as fast as live pass")
    allowed: int = Field(ge=1, description="what gate.benchmark sends at most")


class Preview(Contract):
    """A plan, and what it will take."""

    plan: Plan
    forecast: Forecast | None = Field(description="null: nothing is going to run")
    transfer: BytesToMove | None = Field(default=None, description="null: nothing is going to run")
    needed: tuple[NeededRequests, ...] = Field(
        default=(), description="for comparisons that the live release's own gate measured the spread of"
    )
    interruption: Interruption | None = Field(
        default=None, description="what clients of the live release lose meanwhile; null: nothing"
    )
    unapplied: tuple[str, ...] = Field(
        default=(), description="sections of the spec that differ from the live release's without making another one"
    )
    adapters: tuple[str, ...] = Field(
        default=(),
        description="what `slipway adapters` would change at the release: + added, ~ replaced, - removed, ! refused",
    )


def forecast(
    release: ResolvedRelease,
    plan: Plan,
    past: PastTimes | None,
    *,
    moved: BytesToMove,
    live: ReleaseSpec | None = None,
) -> Forecast:
    """What the plan's steps will take if they take as long as they did in `past`, beside the live release."""
    prices = release.site.prices
    placement = release.serving
    replicas, shared = candidate_share(release.spec, live)
    shapes = {step: release.step(step, plan.estimate).shape for step in steps_of(release.spec) if _runs(step, plan)}
    pods = [
        (_step(step, _expected_s(step, plan, moved, past) if past else None, shape.gpus), quantity(shape.cpu))
        for step, shape in shapes.items()
    ]
    served = [each.seconds for each, _ in pods if each.step in CANDIDATE_STEPS and each.seconds is not None]
    added, cpus = candidate_adds(release, live)
    candidate = _step("roll-out", sum(served) if served else None, added)
    pods.append((candidate, cpus))
    gpu_hours_of_pods = [each.gpu_hours for each, _ in pods if each.gpu_hours is not None]
    gpu_hours = sum(gpu_hours_of_pods) if gpu_hours_of_pods else None
    cpu_hours = sum(cpus * (each.seconds or 0.0) for each, cpus in pods if not each.gpus) / HOUR_S
    return Forecast(
        of=past.release_id if past else None,
        state=past.state if past else None,
        differs=past.differs if past else (),
        steps=tuple(each for each, _ in pods[:-1]),
        candidate_gpus=replicas * placement.ranks,
        shared_gpus=shared if placement.ranks else 0,
        gpu=release.spec.engine.gpu,
        candidate_gpu_hours=candidate.gpu_hours,
        gpu_hours=gpu_hours,
        cost=None if gpu_hours is None else price_of(prices, release.spec.engine.gpu, gpu_hours, cpu_hours),
        currency=prices.currency if prices else None,
    )


def differences(spec: ReleaseSpec, plan: Plan, past: Release) -> tuple[str, ...]:
    """How an earlier release differs in what times depend on: old and new value, as far as these are short."""
    lines = []
    for name in NAMED_WITH_VALUES:
        old, new = attrgetter(name)(past.spec), attrgetter(name)(spec)
        if old != new:
            lines.append(f"{name}: {_text(old)} → {_text(new)}")
    lines += [f"{name} differs" for name in NAMED_ALONE if attrgetter(name)(past.spec) != attrgetter(name)(spec)]
    old, new = past.plan.download_bytes, plan.download_bytes
    if old and new and not 1 / SAME_SIZE <= new / old <= SAME_SIZE:
        times = new / old
        lines.append(
            f"the model has {f'{times:,.0f}' if times >= WHOLE_NUMBERS_FROM else f'{times:.2g}'} times the bytes"
        )
    return tuple(lines)


def _text(value: object) -> str:
    return "none" if value is None else str(value)


def interruption(spec: ReleaseSpec, live: Release, estimate: Forecast) -> Interruption | None:
    """What clients lose while a candidate of `spec` runs on GPUs of the live release; None where it has its own."""
    if spec.rollout.surge == "full":
        return None
    replicas = live.spec.serving.replicas.min
    times = [each.seconds for each in estimate.steps if each.step in CANDIDATE_STEPS]
    timed_s = sum(each for each in times if each is not None)
    return Interruption(
        live=live.id,
        of=estimate.of,
        untimed=tuple(each.step for each in estimate.steps if each.step in CANDIDATE_STEPS and each.seconds is None),
        replicas=replicas,
        kept=shares(live.spec, replicas, spec).live,
        seconds=timed_s or None,
    )


def needed_requests(gate: Gate, report: GateReport) -> tuple[NeededRequests, ...]:
    """How many requests each comparison with live will need, from the intervals of an earlier gate.

    An interval's width on a log scale falls with the root of the number of requests. A comparison whose limit leaves a
    candidate no room to be as fast as live has no such number.
    """
    settings = gate.benchmark
    measured = {each.what: each for each in report.judgements}
    needed = []
    for line in (line for line in gate.expect if line.of == "live" and (line.limit > 1) == line.is_upper):
        for level in settings.levels if line.level is None else (line.level,):
            what = Line(line, level).what
            low, high = (measured[what].interval if what in measured else None) or (None, None)
            if low and high and low < high and line.limit != 1:
                reach = NEEDED_REACH * math.log(high / low) / 2 / abs(math.log(line.limit))
                needed.append(
                    NeededRequests(
                        what=what,
                        limit=line.limit,
                        requests=max(1, math.ceil(measured[what].count * reach**2)),
                        allowed=settings.max_requests or settings.requests,
                    )
                )
    return tuple(needed)


def candidate_share(spec: ReleaseSpec, live: ReleaseSpec | None) -> tuple[int, int]:
    """The candidate's replicas, and how many GPUs (without GPUs: replicas) of the live release they take over."""
    if live is None or spec.rollout.surge == "full":
        return spec.serving.replicas.min, 0
    serving = live.serving.replicas.min
    return shares(live, serving, spec).candidate, handed_over(live, serving, spec)


def candidate_adds(release: ResolvedRelease, live: ReleaseSpec | None) -> tuple[int, float]:
    """GPUs, or without these CPUs, that the candidate's pods need besides those that the live release gives up."""
    placement, (replicas, shared) = release.serving, candidate_share(release.spec, live)
    if placement.ranks:
        return replicas * placement.ranks - shared, 0.0
    return 0, (replicas - shared) * quantity(placement.shape.cpu)


def _runs(step: Step, plan: Plan) -> bool:
    return STEP_KINDS[step].timed and (step not in STAGES or step in plan.missing)


def _expected_s(step: Step, plan: Plan, moved: BytesToMove, past: PastTimes) -> float | None:
    """The step's time; None if it left none, or if it says nothing of the bytes that will be downloaded."""
    seconds, size_bytes, past_bytes = past.seconds.get(step), plan.download_bytes, past.download_bytes
    if step == "download":
        size_bytes = moved.download_bytes
        past_bytes = past_bytes if past.downloaded_bytes is None else past.downloaded_bytes
        if size_bytes and not past_bytes:
            return None
    if seconds is None or step not in STAGES or not past_bytes:
        return seconds
    return seconds * size_bytes / past_bytes


def _step(step: Step, seconds: float | None, gpus: int) -> StepForecast:
    return StepForecast(
        step=step, seconds=seconds, gpus=gpus, gpu_hours=None if seconds is None else gpus * seconds / HOUR_S
    )


def price_of(prices: Prices | None, product: str | None, gpu_hours: float, cpu_hours: float) -> float | None:
    """What GPUs of a product and CPUs cost for these hours; None where the site has no price for them."""
    if prices is None or (product is not None and product not in prices.gpu_hour):
        return None
    return gpu_hours * (prices.gpu_hour[product] if product else 0.0) + cpu_hours * prices.cpu_hour
