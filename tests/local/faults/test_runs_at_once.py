"""Several runs of one model at once, runs that died with the model's lease, and clocks that disagree."""

from datetime import timedelta

import pytest

from tests.fakes.clock import WrongClock
from tests.local.faults.model import DONE, WRONG_INPUT

HOUR = timedelta(hours=1)


def test_of_two_releases_at_once_one_goes_live_and_the_other_one_does_later(model):
    first, second, codes = model.version(), model.version(), []
    in_another_pod = model.elsewhere()

    model.cluster.act("Deployment", first.id, before=lambda: codes.append(in_another_pod.step("roll-out", second)))
    model.steps(first, "roll-out")
    assert codes == [WRONG_INPUT], in_another_pod.message
    assert f"run {first.plan.run}" in in_another_pod.message
    in_another_pod.steps(second, "roll-back")  # as the refused run does; nothing is its own
    model.judge(first)
    model.steps(first, "promote")
    model.assert_whole(first.id, ("promoted", first.id))

    model.steps(second, "roll-out")
    model.judge(second)
    model.steps(second, "promote")
    model.assert_whole(second.id, ("promoted", second.id), ("promoted", first.id))


def test_a_roll_back_during_a_promotion_is_refused_and_works_after_it(model):
    before, new, codes = model.live, model.candidate(rollout={"keep": 2}), []
    person = model.elsewhere()

    model.cluster.act("Service", "demo", after=lambda: codes.append(person.revert()))
    model.steps(new, "promote")
    assert codes == [WRONG_INPUT], person.message
    assert person.revert() == DONE, person.message

    model.assert_whole(before, ("rolled-back", new.id), ("promoted", new.id))


def test_a_release_during_a_roll_back_is_refused_and_works_after_it(paper_model):
    model = paper_model
    before, bad = model.live, model.released(rollout={"keep": 2})
    new, codes = model.version(), []
    run = model.elsewhere()

    model.cluster.act("Service", "demo", after=lambda: codes.append(run.step("roll-out", new)))
    assert model.revert() == DONE, model.message
    assert codes == [WRONG_INPUT], run.message
    assert model.answers() == before
    run.steps(new, "roll-out")
    run.judge(new)
    run.steps(new, "promote")

    model.assert_whole(new.id, ("promoted", new.id), ("rolled-back", bad.id), ("promoted", bad.id))


def test_the_lease_of_a_dead_run_is_taken_over_with_what_it_left_once_airflow_says_so(paper_model):
    before, left, new = paper_model.live, paper_model.version(), paper_model.version()
    dead = paper_model.elsewhere(dag_run="release__demo/dead")
    dead.steps(left, "roll-out")  # and then it died
    assert paper_model.step("roll-out", new) == WRONG_INPUT
    assert paper_model.live == paper_model.answers() == before

    lease = paper_model.cluster.lease_holder("slipway-demo")
    model = paper_model.elsewhere(ended_holders={"slipway-demo": lease.version})
    model.steps(new, "roll-out")
    model.judge(new)
    model.steps(new, "promote")

    model.assert_whole(new.id, ("promoted", new.id))


@pytest.mark.parametrize("ahead", [-2 * HOUR, 2 * HOUR], ids=["behind", "ahead"])
def test_a_clock_that_is_wrong_by_hours_changes_nothing(model, ahead):
    new, other = model.version(), model.version()
    misled = model.elsewhere(WrongClock(ahead))
    model.steps(new, "roll-out")
    model.judge(new)

    assert misled.step("roll-out", other) == WRONG_INPUT, misled.message
    model.steps(new, "promote")
    model.assert_whole(new.id, ("promoted", new.id))

    misled.steps(other, "roll-out")
    assert model.step("roll-out", new) == WRONG_INPUT, model.message
    misled.steps(other, "roll-back")
