"""One spec with a list of shapes: a model for each, released by one run, live where its own gate passed."""

import json
from types import SimpleNamespace

import pytest

from tests.local.chain.fleet import LIVE, NAME, REFUSED

pytestmark = pytest.mark.timeout(3600)

SHARED = ("download", "quantize", "build")
"""Stages whose keys do not depend on a member's shape or name."""


@pytest.fixture(scope="module")
def released(fleet_release):
    """The fleet's first release by the command: its exit code, and what it printed."""
    done = fleet_release.result()
    assert done.stdout, done.stderr
    return SimpleNamespace(code=done.returncode, **json.loads(done.stdout))


def test_a_member_that_is_refused_leaves_the_others_to_go_live(chain, released):
    assert (released.code, released.exit_code, released.run["state"]) == (1, 1, "failed")
    steps = {step["name"]: step for step in released.steps}
    assert {name: step["state"] for name, step in steps.items()} == {REFUSED: "failed", LIVE: "done"}
    assert steps[REFUSED]["text"].startswith(f"refused: {REFUSED}-")
    assert steps[LIVE]["text"] == f"promoted: {chain.live(LIVE)} is live"
    assert released.outcome == f"fleet {NAME}: 1 of 2 models serve what was requested"

    assert chain.live(REFUSED) is None
    assert chain.channel(REFUSED)["history"][0]["event"] == "refused"
    assert (chain.deployments(REFUSED), chain.candidate(REFUSED)) == (set(), None)
    assert chain.ask(LIVE, LIVE)


def test_each_member_has_the_shape_that_the_spec_lists(chain, released):
    (deployment,) = chain.cluster.find("Deployment", {"slipway.dev/model": LIVE})
    containers = deployment["spec"]["template"]["spec"]["containers"]

    assert "2" in {container["resources"]["requests"]["cpu"] for container in containers}


def test_stages_that_do_not_depend_on_the_shape_are_stored_once(chain, released):
    stages = [
        chain.read(chain.layout.release(name, chain.channel(name)["history"][0]["release_id"]))["plan"]["stages"]
        for name in (REFUSED, LIVE)
    ]

    keys = [{stage: each[stage]["key"] for stage in each} for each in stages]
    assert {stage for stage in keys[0] if keys[0][stage] == keys[1][stage]} == set(SHARED)
    assert {stage for stage, each in stages[1].items() if each["stored"]} == set(SHARED)


def test_explain_shows_each_member_with_its_verdict(chain, released):
    done = chain.slipway("explain", NAME, "--json")

    assert done.returncode == 0, done.stderr
    refused, live = json.loads(done.stdout)["members"]
    assert (refused["name"], refused["release"], refused["verdict"]) == (REFUSED, None, "refused")
    assert "latency_ms" in refused["reason"]
    assert (live["release"], live["verdict"], live["on"]) == (chain.live(LIVE), "promoted", "cpu-2")
    assert (live["format"], live["engine_kind"], live["engine"]) == ("int8", "openvino", refused["engine"])
    assert live["tokens_per_s"] > 0


def test_each_model_is_rolled_back_by_its_own_name(chain, released):
    done = chain.slipway("rollback", NAME, "--reason", "a test")

    assert done.returncode == 65
    assert f"one of {REFUSED}, {LIVE}" in done.stderr


def test_the_status_has_a_part_for_each_member(chain, released):
    status = json.loads(chain.slipway("status", NAME, "--json").stdout)

    assert [model["name"] for model in status["models"]] == [REFUSED, LIVE]
