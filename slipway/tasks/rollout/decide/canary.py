"""A canary as a pure function: (state, verdict) -> the next state, and the share of the traffic that each state gives.

The state is stored with the weights, in the model's route. A step that was killed at any point reads it and continues.
Absent data is no verdict: it holds the weight for some looks, and then rolls back.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.site.exposure import Split
from slipway.tasks.contracts.spec.rollout import Rollout


class Phase(StrEnum):
    """The stages of a canary. The last two are final."""

    MIRRORING = "mirroring"
    SHIFTING = "shifting"
    PASSED = "passed"
    ROLLED_BACK = "rolled-back"


FINAL = frozenset({Phase.PASSED, Phase.ROLLED_BACK})


@dataclass(frozen=True)
class CanaryPlan:
    """What a spec allows."""

    weights: tuple[int, ...]
    """Percent of the requests at each step, increasing."""
    mirror_percent: int | None
    max_blind_looks: int


@dataclass(frozen=True)
class State:
    """Where one canary is."""

    phase: Phase
    step: int = 0
    """Position in the plan's weights."""
    blind_looks: int = 0
    """Looks in a row that could not be judged."""


def plan_of(rollout: Rollout) -> CanaryPlan:
    """The plan that a spec's section asks for."""
    return CanaryPlan(rollout.steps, rollout.mirror, rollout.limits.blind_looks)


def begin(plan: CanaryPlan) -> State:
    """The first state."""
    return State(Phase.SHIFTING if plan.mirror_percent is None else Phase.MIRRORING)


def advance(state: State, verdict: Verdict, plan: CanaryPlan) -> State:
    """Decide one move. Final phases never change."""
    if state.phase in FINAL:
        return state
    blind = verdict is Verdict.INCONCLUSIVE
    if verdict is Verdict.FAILED or (blind and state.blind_looks >= plan.max_blind_looks):
        return replace(state, phase=Phase.ROLLED_BACK)
    if blind:
        return replace(state, blind_looks=state.blind_looks + 1)
    if state.phase is Phase.MIRRORING:
        return State(Phase.SHIFTING)
    if state.step + 1 == len(plan.weights):
        return State(Phase.PASSED, state.step)
    return State(Phase.SHIFTING, state.step + 1)


def split(state: State, plan: CanaryPlan) -> Split:
    """The share of the traffic in a state. A canary that passed keeps its last step's until it is promoted."""
    match state.phase:
        case Phase.MIRRORING:
            return Split(0, plan.mirror_percent)
        case Phase.SHIFTING | Phase.PASSED:
            return Split(plan.weights[state.step])
        case Phase.ROLLED_BACK:
            return Split(0)
        case _:
            assert_never(state.phase)
