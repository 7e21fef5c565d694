"""What a release cost and costs: GPU-hours and money of its steps, and of a million tokens. Pure arithmetic.

Prices are the site's, of when the gate judged. Waiting for nodes, images and people is not in it.
"""

from collections.abc import Iterable, Mapping

from pydantic import Field

from slipway.tasks.contracts.base import Contract
from slipway.tasks.contracts.fit.forecast import HOUR_S, candidate_adds, candidate_share, price_of
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.fit.step_kinds import CANDIDATE_STEPS, STEP_KINDS
from slipway.tasks.contracts.site.site import quantity
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.plan import Estimate
from slipway.tasks.contracts.stored.release import StepResult

MILLION = 1e6


class StepCost(Contract):
    """What one step's pod took."""

    step: Step
    seconds: float = Field(ge=0)
    gpu_hours: float = Field(ge=0)
    cost: float | None = Field(ge=0, description="null: the site has no price for it")


class CandidateCost(Contract):
    """What the candidate's pods took beside the steps, without GPUs that the live release gave up for them."""

    seconds: float = Field(ge=0, description="of the steps beside which they ran")
    gpu_hours: float = Field(ge=0)
    cost: float | None = Field(ge=0, description="null: the site has no price for it")


class LevelCost(Contract):
    """What tokens cost at one level of load."""

    level: str = Field(description="as text")
    tokens_per_s: float = Field(ge=0, description="output tokens of the candidate")
    cost_per_million_tokens: float | None = Field(ge=0, description="null: no price, or no tokens")


class Ledger(Contract):
    """evidence/<run>/cost.json."""

    currency: str | None = Field(description="ISO 4217; null: the site has no prices")
    steps: tuple[StepCost, ...] = Field(description="that this run executed until its gate")
    candidate: CandidateCost | None = Field(default=None, description="null: an earlier version did not count it")
    cost_per_hour: float | None = Field(ge=0, description="of the candidate's pods; null: the site has no price")
    levels: tuple[LevelCost, ...] = Field(default=(), description="of the load test")

    @property
    def _pods(self) -> tuple[StepCost | CandidateCost, ...]:
        return self.steps if self.candidate is None else (*self.steps, self.candidate)

    @property
    def gpu_hours(self) -> float:
        """Of all steps and of the candidate."""
        return sum(each.gpu_hours for each in self._pods)

    @property
    def cost(self) -> float | None:
        """Of all steps and of the candidate; None where one has no price."""
        costs = [each.cost for each in self._pods if each.cost is not None]
        return sum(costs) if len(costs) == len(self._pods) else None


def ledger(
    release: ResolvedRelease,
    estimate: Estimate | None,
    results: Iterable[StepResult],
    tokens_per_s: Mapping[LoadLevel, float],
    *,
    live: ReleaseSpec | None = None,
) -> Ledger:
    """The ledger of a run: `results` are those of its steps, `tokens_per_s` what the candidate gave at each level."""
    hourly, prices = cost_per_hour(release, live), release.site.prices
    ran = [each for each in results if each.outcome == "done" and STEP_KINDS[each.step].timed]
    levels = [
        LevelCost(level=str(level), tokens_per_s=tokens, cost_per_million_tokens=per_million_tokens(hourly, tokens))
        for level, tokens in tokens_per_s.items()
    ]
    return Ledger(
        currency=prices.currency if prices else None,
        steps=tuple(_step(release, estimate, each) for each in ran),
        candidate=_candidate(release, live, sum(each.seconds for each in ran if each.step in CANDIDATE_STEPS)),
        cost_per_hour=hourly,
        levels=tuple(levels),
    )


def cost_per_hour(release: ResolvedRelease, live: ReleaseSpec | None = None) -> float | None:
    """What the candidate's pods cost; None where the site has no price for them. `live` is the live release's spec."""
    placement, (replicas, _) = release.serving, candidate_share(release.spec, live)
    cpus = 0.0 if placement.ranks else replicas * quantity(placement.shape.cpu)
    return price_of(release.site.prices, release.spec.engine.gpu, replicas * placement.ranks, cpus)


def per_million_tokens(cost_per_hour: float | None, tokens_per_s: float) -> float | None:
    """What a million output tokens cost; None without a price or without tokens."""
    if cost_per_hour is None or tokens_per_s <= 0:
        return None
    return cost_per_hour / (tokens_per_s * HOUR_S) * MILLION


def _step(release: ResolvedRelease, estimate: Estimate | None, result: StepResult) -> StepCost:
    shape, hours = release.step(result.step, estimate).shape, result.seconds / HOUR_S
    cpu_hours = 0.0 if shape.gpus else hours * quantity(shape.cpu)
    gpu_hours = hours * shape.gpus
    cost = price_of(release.site.prices, release.spec.engine.gpu, gpu_hours, cpu_hours)
    return StepCost(step=result.step, seconds=result.seconds, gpu_hours=gpu_hours, cost=cost)


def _candidate(release: ResolvedRelease, live: ReleaseSpec | None, seconds: float) -> CandidateCost:
    (gpus, cpus), hours = candidate_adds(release, live), seconds / HOUR_S
    cost = price_of(release.site.prices, release.spec.engine.gpu, gpus * hours, cpus * hours)
    return CandidateCost(seconds=seconds, gpu_hours=gpus * hours, cost=cost)
