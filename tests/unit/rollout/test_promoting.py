"""Traffic, channel and cleanup after a gate that passed, and only then."""

import pytest

from slipway.tasks.adapters.store.object_store import NotFoundError
from slipway.tasks.contracts.errors import ConflictError, InputError
from slipway.tasks.steps import promote, roll_back, roll_out
from tests.fakes.documents.rollouts import channel, judged, released, version
from tests.fakes.kube.cluster import standing


def rolled_out(workspace, number, verdict="passed", **changes):
    made = version(number, **changes)
    roll_out.run(made, workspace)
    judged(workspace, made, verdict)
    return made


def test_the_first_release_of_a_model_goes_live(workspace, cluster):
    made = rolled_out(workspace, 1)

    told = promote.run(made, workspace)

    assert standing(cluster) == {"deployments": [made.id], "services": {"demo": made.id}, "leases": []}
    assert channel(workspace).live.release_id == made.id
    assert (told.data["release"], told.data["was"], told.data["service"]) == (made.id, None, "demo")


def test_the_release_before_stays_warm_and_the_one_before_that_goes(workspace, cluster):
    for number in (1, 2):
        released(workspace, number)
    third = rolled_out(workspace, 3)

    told = promote.run(third, workspace)

    assert standing(cluster)["deployments"] == [version(2).id, version(3).id]
    assert [entry.release_id for entry in channel(workspace).previous] == [version(2).id]
    assert told.data["was"] == version(2).id


def test_a_release_that_goes_takes_its_disruption_budget_along(workspace, cluster):
    several = {"serving": {"replicas": {"min": 2, "max": 2}}, "rollout": {"keep": 1}}
    first = released(workspace, 1, **several)

    second = released(workspace, 2, **several)

    assert cluster.get("PodDisruptionBudget", first.id) is None
    assert cluster.get("PodDisruptionBudget", second.id) is not None


def test_traffic_moves_before_the_channel_and_nothing_is_deleted_before_both(workspace, cluster):
    for number in (1, 2):
        released(workspace, number)
    third = rolled_out(workspace, 3)
    cluster.changes.clear()
    seen_at_write, put_if = [], workspace.store.put_if
    workspace.store.put_if = lambda *args, **more: (seen_at_write.append(list(cluster.changes)), put_if(*args, **more))[
        1
    ]

    promote.run(third, workspace)

    assert seen_at_write == [["lease slipway-demo to run-3", "apply Service demo"]]
    assert cluster.changes[2:] == [
        "delete Service demo-candidate",
        f"delete Deployment {version(1).id}",
        "delete Lease slipway-demo",
    ]


@pytest.mark.parametrize("verdict", ["failed", "inconclusive"])
def test_a_gate_that_did_not_pass_promotes_nothing(workspace, cluster, verdict):
    made = rolled_out(workspace, 1, verdict)

    with pytest.raises(InputError) as caught:
        promote.run(made, workspace)

    assert caught.value.found == f"verdict {verdict} in run run-1"
    assert "demo" not in standing(cluster)["services"]


def test_a_gate_that_passed_in_another_run_promotes_nothing(workspace):
    rolled_out(workspace, 1)

    with pytest.raises(InputError) as caught:
        promote.run(version(1, run="run-9"), workspace)

    assert caught.value.what.endswith("in run run-9")
    assert caught.value.found == "verdict passed in run run-1"


def test_without_a_gate_nothing_is_promoted(workspace):
    made = version(1)
    roll_out.run(made, workspace)

    with pytest.raises(NotFoundError):
        promote.run(made, workspace)


def test_running_it_again_changes_nothing(workspace, cluster):
    made = released(workspace, 1)
    before = standing(cluster)

    assert promote.run(made, workspace).data["moves"] == []
    assert (standing(cluster), len(channel(workspace).history)) == (before, 1)


def test_a_run_whose_hold_expired_may_still_promote_while_nobody_else_came(workspace):
    made = rolled_out(workspace, 1)
    workspace.clock.sleep(24 * 3600)

    promote.run(made, workspace)

    assert channel(workspace).live.release_id == made.id


def test_a_run_that_another_one_overtook_promotes_nothing(workspace, cluster):
    slow = rolled_out(workspace, 1)
    workspace.clock.sleep(24 * 3600)
    quick = rolled_out(workspace, 2)

    with pytest.raises(ConflictError) as caught:
        promote.run(slow, workspace)
    assert caught.value.found.startswith("run run-2, which acquired it at ")

    roll_back.run(quick, workspace)
    with pytest.raises(ConflictError) as caught:
        promote.run(slow, workspace)
    assert caught.value.found == "no holder"
    assert standing(cluster)["services"] == {}


def test_a_release_is_watched_before_the_channel_names_it(workspace):
    made = rolled_out(workspace, 1, rollout={"bake_s": 60})
    began = workspace.clock.monotonic()

    promote.run(made, workspace)

    assert workspace.clock.monotonic() - began >= 60
    assert channel(workspace).live.release_id == made.id


def test_a_release_that_fails_while_it_is_watched_is_rolled_back(workspace, cluster):
    live = released(workspace, 1)
    made = rolled_out(workspace, 2, rollout={"bake_s": 60})
    sleep = workspace.clock.sleep
    workspace.clock.sleep = lambda seconds: (cluster.unavailable.add(made.id), sleep(seconds))

    with pytest.raises(InputError) as caught:
        promote.run(made, workspace)
    assert caught.value.what == f"{made.id} became unavailable 5 s after it took the traffic"
    assert standing(cluster)["services"]["demo"] == made.id
    roll_back.run(made, workspace)

    assert standing(cluster) == {"deployments": [live.id], "services": {"demo": live.id}, "leases": []}
