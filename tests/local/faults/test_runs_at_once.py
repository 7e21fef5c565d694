"""Several runs of one model at once, runs that died with the model's lease, and clocks that disagree."""

from datetime import timedelta

import pytest

from tasks.adapters.clock import SystemClock
from tests.local.faults.model import DONE, WRONG_INPUT

pytestmark = pytest.mark.timeout(120)

HOUR = timedelta(hours=1)


class WrongClock(SystemClock):
    """The clock of a node that is some time ahead, or behind."""

    def __init__(self, ahead):
        self._ahead = ahead

    def now(self):
        return super().now() + self._ahead


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


def test_a_release_during_a_roll_back_is_refused_and_works_after_it(model):
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


@pytest.mark.parametrize("dag_run", ["release__demo/dead", ""], ids=["known to Airflow", "started by hand"])
def test_the_lease_of_a_dead_run_is_taken_over_with_what_it_left(model, dag_run):
    before, left, new = model.live, model.version(), model.version()
    long_ago = timedelta(0) if dag_run else -2 * HOUR
    dead = model.elsewhere(WrongClock(long_ago), dag_run=dag_run)
    dead.steps(left, "roll-out")  # and then it died
    if dag_run:
        assert model.step("roll-out", new) == WRONG_INPUT  # until Airflow says that it has ended
        assert (model.live, model.answers()) == (before, before)
    lease = model.cluster.lease_holder("slipway-demo")
    ended = {"slipway-demo": lease.version} if dag_run else {}
    model = model.elsewhere(ended_holders=ended)

    model.steps(new, "roll-out")
    model.judge(new)
    model.steps(new, "promote")

    model.assert_whole(new.id, ("promoted", new.id))


def test_a_run_whose_clock_is_an_hour_behind_loses_its_model_and_promotes_nothing(model):
    slow, new = model.version(), model.version()
    behind = model.elsewhere(WrongClock(-HOUR))
    behind.steps(slow, "roll-out")
    behind.judge(slow)

    model.steps(new, "roll-out")  # to this run, the lease has expired
    assert behind.step("promote", slow) == WRONG_INPUT
    assert "lost the lease" in behind.message
    behind.steps(slow, "roll-back")
    model.judge(new)
    model.steps(new, "promote")

    model.assert_whole(new.id, ("promoted", new.id))


def test_a_run_whose_clock_is_an_hour_ahead_takes_no_lease_of_a_run_that_goes_on(model):
    new, other = model.candidate(), model.version()
    ahead = model.elsewhere(WrongClock(HOUR))

    assert ahead.step("roll-out", other) == WRONG_INPUT, ahead.message
    model.steps(new, "promote")

    model.assert_whole(new.id, ("promoted", new.id))
