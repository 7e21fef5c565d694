"""What a spec may say of drills."""

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.measured.drill import DrillRequest
from slipway.tasks.contracts.spec.rollout import DrillSettings
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.fakes.releases import SPEC, spec


def refusal(**changes):
    with pytest.raises(InputError) as caught:
        read_contract(ReleaseSpec, {**SPEC, **changes}, "spec.yaml")
    return caught.value.what


def test_there_is_no_drill_unless_a_spec_asks_for_one():
    assert spec().rollout.drill is None
    assert spec(rollout={"drill": {}}).rollout.drill == DrillSettings(schedule="@weekly", request_rate=2.0, seconds=30)


@pytest.mark.parametrize(
    ("drill", "said"),
    [
        ({"schedule": "weekly"}, "rollout.drill.schedule: "),
        ({"schedule": "@continuous"}, "a release could never begin"),
        ({"request_rate": 0.0}, "rollout.drill.request_rate: "),
        ({"request_rate": 101}, "rollout.drill.request_rate: "),
        ({"request_rate": float("nan")}, "rollout.drill.request_rate: "),
        ({"seconds": 4}, "rollout.drill.seconds: "),
        ({"seconds": 601}, "rollout.drill.seconds: "),
        ({"request_rate": 0.5, "seconds": 30}, "0.5 requests/s for 30 s are 15 requests, expected at least 20"),
    ],
)
def test_a_drill_that_proves_nothing_or_never_ends_is_refused(drill, said):
    assert said in refusal(rollout={"drill": drill})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rollout": {"surge": "none"}}, "remove drill, or choose surge full"),
        ({"rollout": {"keep": 1}}, "remove drill, or raise keep"),
        ({"serving": {"group": "shared"}}, "remove rollout.drill, or serving.group"),
    ],
)
def test_a_model_that_has_no_second_server_of_its_own_has_no_drill(changes, said):
    assert said in refusal(**{**changes, "rollout": {**changes.get("rollout", {}), "drill": {}}})
    spec(**changes)


def test_a_canary_may_have_drills_too():
    canary = {"strategy": "canary", "bake_s": 20, "drill": {}}

    assert spec(serving={"exposure": "ingress"}, rollout=canary).rollout.drill is not None


def test_a_request_names_a_model_and_a_run_as_kubernetes_can_store_them():
    assert DrillRequest(name="demo", run="run-9").settings == DrillSettings()
    for changes in ({"name": "Not A Label"}, {"run": "a b"}, {"settings": {"seconds": 1}}):
        with pytest.raises(ValidationError):
            DrillRequest.model_validate({"name": "demo", "run": "run-9", **changes})
