"""The decisions of a canary, whatever the verdicts are."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.site.exposure import Split
from slipway.tasks.rollout.decide.canary import FINAL, CanaryPlan, Phase, State, advance, begin, split

WEIGHTS = st.lists(st.integers(1, 99), min_size=1, max_size=6, unique=True).map(lambda found: tuple(sorted(found)))
PLANS = st.builds(
    CanaryPlan, weights=WEIGHTS, mirror_percent=st.none() | st.integers(1, 100), max_blind_looks=st.integers(0, 4)
)
VERDICTS = st.lists(st.sampled_from(Verdict), max_size=40)
PLAN = CanaryPlan((5, 25, 50), mirror_percent=None, max_blind_looks=2)


def states(plan, verdicts):
    """Every state that a canary passes through."""
    found = [begin(plan)]
    for verdict in verdicts:
        found.append(advance(found[-1], verdict, plan))
    return found


@given(plan=PLANS, verdicts=VERDICTS)
def test_no_weight_is_above_the_plan_and_none_is_skipped(plan, verdicts):
    weights = [split(state, plan).candidate_percent for state in states(plan, verdicts)]

    assert max(weights) <= max(plan.weights)
    steps = [0, *plan.weights]
    for before, after in pairwise(weights):
        assert after in {0, before, steps[min(steps.index(before) + 1, len(steps) - 1)]}


@given(plan=PLANS, verdicts=VERDICTS, more=VERDICTS)
def test_final_phases_stay(plan, verdicts, more):
    end = states(plan, verdicts)[-1]
    if end.phase in FINAL:
        for verdict in more:
            assert advance(end, verdict, plan) == end


@given(plan=PLANS, verdicts=VERDICTS)
def test_only_a_verdict_for_every_step_passes_a_canary(plan, verdicts):
    found = states(plan, verdicts)

    if found[-1].phase is Phase.PASSED:
        assert verdicts.count(Verdict.PASSED) >= len(plan.weights) + (plan.mirror_percent is not None)
        before = verdicts[: [state.phase for state in found].index(Phase.PASSED)]
        assert Verdict.FAILED not in before


@given(plan=PLANS, verdicts=VERDICTS)
def test_a_failed_look_takes_all_traffic_back(plan, verdicts):
    before = states(plan, verdicts)[-1]

    after = advance(before, Verdict.FAILED, plan)

    if before.phase is not Phase.PASSED:
        assert (after.phase, split(after, plan)) == (Phase.ROLLED_BACK, Split(0))


@given(plan=PLANS)
def test_absent_data_holds_the_weight_and_then_rolls_back(plan):
    found = states(plan, [Verdict.INCONCLUSIVE] * (plan.max_blind_looks + 1))

    assert {split(state, plan) for state in found[:-1]} == {split(begin(plan), plan)}
    assert found[-1].phase is Phase.ROLLED_BACK


@given(plan=PLANS, verdicts=VERDICTS)
def test_a_mirror_comes_first_and_gives_the_candidate_no_clients(plan, verdicts):
    found = states(plan, verdicts)

    mirrored = [state for state in found if split(state, plan).mirror_percent is not None]
    assert mirrored == found[: len(mirrored)]
    assert all(split(state, plan) == Split(0, plan.mirror_percent) for state in mirrored)
    assert bool(mirrored) is (plan.mirror_percent is not None)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([Verdict.PASSED], State(Phase.SHIFTING, 1)),
        ([Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE], State(Phase.SHIFTING, 0, 2)),
        ([Verdict.INCONCLUSIVE, Verdict.PASSED], State(Phase.SHIFTING, 1, 0)),
        ([Verdict.PASSED] * 3, State(Phase.PASSED, 2)),
        ([Verdict.PASSED, Verdict.FAILED], State(Phase.ROLLED_BACK, 1)),
    ],
)
def test_a_canary_by_its_verdicts(verdicts, expected):
    assert states(PLAN, verdicts)[-1] == expected
