import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowSkipException

from slipway.airflow.refusals import Refusal
from slipway.airflow.released import Released
from slipway.airflow.reported import NEVER_STARTED


def decide(runs, **params):
    operator = Released(task_id="released", name="demo")
    ExecutorSafeguard.tracker.set(operator)
    operator.execute(runs.context(operator, **params))


def test_a_promoted_release_is_a_success(runs):
    runs.planned()
    runs.xcoms["promote", "return_value"] = runs.result("promote").model_dump(mode="json")

    decide(runs)


@pytest.mark.parametrize("never_started", sorted(NEVER_STARTED))
def test_a_promotion_of_an_attempt_that_was_cleared_is_no_success(runs, never_started):
    runs.planned()
    runs.xcoms["promote", "return_value"] = runs.result("promote").model_dump(mode="json")
    runs.states |= {"gate": "failed", "promote": never_started}

    with pytest.raises(Refusal, match="gate failed"):
        decide(runs)


@pytest.mark.parametrize(("action", "params"), [("nothing", {}), ("release", {"plan_only": True})])
def test_a_run_that_was_not_to_release_anything_is_no_failure(runs, action, params):
    runs.planned(action=action)

    with pytest.raises(AirflowSkipException):
        decide(runs, **params)


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ({"roll-out": "success", "benchmark": "failed", "promote": "skipped"}, "benchmark failed"),
        ({"roll-out": "success", "benchmark": "skipped", "promote": "skipped"}, "the run was ended before it finished"),
    ],
)
def test_a_run_that_a_person_ended_midway_failed_although_airflow_skipped_the_rest(runs, states, why):
    runs.planned()
    runs.states |= states

    with pytest.raises(Refusal, match=f"no release of demo was promoted: {why}"):
        decide(runs)


def test_a_run_whose_plan_failed_failed(runs):
    runs.states |= {"plan": "failed"}

    with pytest.raises(Refusal, match="plan failed"):
        decide(runs)
