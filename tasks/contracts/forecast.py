"""How long a plan will take and what it will cost, from what the same steps took before. Pure arithmetic.

Times of stages grow with the model: a stage that took 60 s for 1 GB is expected to take 120 s for 2 GB. Times of the
other steps depend on the spec's own settings and are taken as they were.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import Field

from tasks.contracts.artifact import STAGES
from tasks.contracts.base import Contract
from tasks.contracts.kubernetes_text import ReleaseId
from tasks.contracts.plan import Plan
from tasks.contracts.release import Step, steps_of
from tasks.contracts.resolution import ResolvedRelease
from tasks.contracts.site import Prices, quantity

HOUR_S = 3600.0
UNTIMED: frozenset[Step] = frozenset({"plan", "roll-back"})
"""Steps that a forecast leaves out: the one that makes it, and the one that a good release does not reach."""
WHILE_SERVED: frozenset[Step] = frozenset({"roll-out", "smoke-test", "benchmark", "evaluate", "gate", "promote"})
"""Steps beside which the candidate's pods run."""


@dataclass(frozen=True)
class PastTimes:
    """What the steps of an earlier release took."""

    release_id: str
    download_bytes: int
    seconds: Mapping[Step, float] = field(default_factory=dict)


class StepForecast(Contract):
    """One step that is going to run."""

    step: Step
    seconds: float | None = Field(ge=0, description="expected time in its pod; null: it never ran before")
    gpus: int = Field(ge=0, description="of its pod")


class Forecast(Contract):
    """Time and cost of a plan's steps. Waiting for nodes, images and people is not in it."""

    of: ReleaseId | None = Field(description="the release whose times were taken; null: there is none")
    steps: tuple[StepForecast, ...] = Field(description="the steps that are going to run, in order")
    candidate_gpus: int = Field(ge=0, description="GPUs of the candidate's pods, from roll-out to promote")
    gpu_hours: float = Field(ge=0, description="of the steps with a time, and of the candidate beside them")
    cost: float | None = Field(default=None, ge=0, description="by the site's prices; null: the site has none for it")
    currency: str | None = None

    @property
    def seconds(self) -> float:
        """Seconds of all steps with a time."""
        return sum(each.seconds or 0.0 for each in self.steps)

    @property
    def unknown(self) -> tuple[Step, ...]:
        """Steps without a time."""
        return tuple(each.step for each in self.steps if each.seconds is None)


class Preview(Contract):
    """A plan, and what it will take."""

    plan: Plan
    forecast: Forecast | None = Field(description="null: nothing is going to run")
    unapplied: tuple[str, ...] = Field(
        default=(), description="sections of the spec that differ from the live release's without making another one"
    )


def forecast(release: ResolvedRelease, plan: Plan, past: PastTimes | None) -> Forecast:
    """What the plan's steps will take if they take as long as they did in `past`."""
    prices = release.site.prices
    placement, replicas = release.serving, release.spec.serving.replicas.min
    pods = [_pod(step, release, plan, past) for step in steps_of(release.spec) if _runs(step, plan)]
    served_s = sum(each.seconds or 0.0 for each, _ in pods if each.step in WHILE_SERVED)
    candidate = StepForecast(step="roll-out", seconds=served_s, gpus=placement.ranks * replicas)
    pods.append((candidate, replicas * quantity(placement.shape.cpu)))
    gpu_hours = sum(each.gpus * (each.seconds or 0.0) for each, _ in pods) / HOUR_S
    cpu_hours = sum(cpus * (each.seconds or 0.0) for each, cpus in pods if not each.gpus) / HOUR_S
    return Forecast(
        of=past.release_id if past else None,
        steps=tuple(each for each, _ in pods[:-1]),
        candidate_gpus=candidate.gpus,
        gpu_hours=gpu_hours,
        cost=_cost(prices, release.spec.engine.gpu, gpu_hours, cpu_hours) if prices and past else None,
        currency=prices.currency if prices else None,
    )


def _runs(step: Step, plan: Plan) -> bool:
    return step not in UNTIMED and (step not in STAGES or step in plan.missing)


def _pod(step: Step, release: ResolvedRelease, plan: Plan, past: PastTimes | None) -> tuple[StepForecast, float]:
    """A step's pod, and its CPUs."""
    seconds = past.seconds.get(step) if past else None
    if seconds is not None and past and step in STAGES and past.download_bytes:
        seconds *= plan.download_bytes / past.download_bytes
    shape = release.step(step, plan.estimate).shape
    return StepForecast(step=step, seconds=seconds, gpus=shape.gpus), quantity(shape.cpu)


def _cost(prices: Prices, product: str | None, gpu_hours: float, cpu_hours: float) -> float | None:
    if product is not None and product not in prices.gpu_hour:
        return None
    return gpu_hours * (prices.gpu_hour[product] if product else 0.0) + cpu_hours * prices.cpu_hour
