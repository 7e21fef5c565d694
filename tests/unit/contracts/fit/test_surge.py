"""What a spec with `rollout.surge: none` may not ask for, and what its plan says is lost."""

import pytest

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.forecast import PastTimes, forecast, interruption
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.bytes_to_move import StoredFiles, bytes_to_move
from tests.fakes.releases import SPEC, release, spec
from tests.fakes.workspace import site

NONE = {"surge": "none"}
OF_LIVE = {"metric": "requests_per_s", "at_least_ratio": 0.9, "of": "live"}
TASK = {"task": "ours", "questions": "hf://datasets/org/questions@main/eval.jsonl", "max_drop_of_live": 0.03}
CANARY = {"strategy": "canary", "bake_s": 60}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gate": {**SPEC["gate"], "expect": [OF_LIVE]}}, "gate.expect requests_per_s: compared with live"),
        ({"gate": {**SPEC["gate"], "harness": {"tasks": [TASK]}}}, "gate.harness ours: compared with live"),
        ({"serving": {"group": "chat"}}, "group chat shares it with other models"),
        ({"serving": {"exposure": "ingress"}, "rollout": {**CANARY, **NONE}}, "choose blue-green, or surge full"),
    ],
)
def test_what_needs_a_live_release_that_serves_in_full_is_refused(changes, words):
    full = {**changes, "rollout": {**changes.get("rollout", {}), "surge": "full"}}
    read_contract(ReleaseSpec, {**SPEC, **full}, "spec.yaml")

    with pytest.raises(InputError) as caught:
        read_contract(ReleaseSpec, {**SPEC, "rollout": NONE, **changes}, "spec.yaml")

    assert words in caught.value.what


def lost(replicas, past=None, rollout=NONE):
    """What the plan of a release beside a live one of so many replicas says."""
    live = release(serving={"replicas": {"min": replicas, "max": replicas}})
    asked = spec(rollout=rollout)
    plan = release().plan
    told = forecast(ResolvedRelease(asked, site()), plan, past, moved=bytes_to_move(plan, StoredFiles()))
    return interruption(asked, live, told)


def test_a_single_replica_is_stopped_for_as_long_as_the_steps_took_before():
    served = ("roll-out", "smoke-test", "benchmark", "gate", "promote")
    past = PastTimes("demo-0", 1, {**dict.fromkeys(served, 180.0), "build": 9999.0})

    found = lost(1, past)

    assert (found.kept, found.seconds) == (0, 900.0)
    assert "every request fails until the candidate is promoted" in found.words
    assert "about 15 min by the times of demo-0;" in found.words


def test_steps_that_left_no_time_are_named_beside_the_minutes():
    found = lost(1, PastTimes("demo-0", 1, {"roll-out": 180.0, "gate": 1.0, "promote": 1.0}))

    assert found.untimed == ("smoke-test", "benchmark")
    assert "about 3 min by the times of demo-0, which has none for smoke-test and benchmark;" in found.words


def test_several_replicas_shrink_to_one_and_nothing_is_made_up_about_the_time():
    found = lost(3)

    assert (found.replicas, found.kept, found.seconds) == (3, 1, None)
    assert "from 3 replicas to 1: less capacity" in found.words
    assert "no earlier release shows how long" in found.words


def test_with_gpus_for_two_nothing_is_lost():
    assert lost(1, rollout={}) is None
