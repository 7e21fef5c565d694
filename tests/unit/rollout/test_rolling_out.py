"""A candidate beside the live release; no traffic moves."""

from dataclasses import replace

import pytest

from slipway.tasks.contracts.errors import ConflictError, InputError, UnavailableError
from slipway.tasks.steps import promote, roll_out
from tests.fakes.documents.rollouts import judged, released, version
from tests.fakes.kube.cluster import KilledError, standing
from tests.support.refused import refused


def test_a_candidate_stands_beside_the_live_release(workspace, cluster):
    live, new = released(workspace, 1), version(2)

    told = roll_out.run(new, workspace).data

    assert standing(cluster) == {
        "deployments": [live.id, new.id],
        "services": {"demo": live.id, "demo-candidate": new.id},
        "leases": ["slipway-demo"],
    }
    assert {name: told[name] for name in ("release", "service", "namespace", "ports")} == {
        "release": new.id,
        "service": "demo-candidate",
        "namespace": "slipway-serving",
        "ports": {"http": 8000, "grpc": 8001, "metrics": 8002},
    }
    assert told["address"]


def test_running_it_again_changes_nothing_but_the_lease(workspace, cluster):
    roll_out.run(version(1), workspace)
    cluster.changes.clear()

    assert roll_out.run(version(1), workspace).data["moves"] == []
    assert cluster.changes == ["lease slipway-demo to run-1"]


def test_a_candidate_is_deployed_anew_when_its_spec_asks_for_something_else(workspace, cluster):
    roll_out.run(version(1), workspace)
    cluster.changes.clear()

    roll_out.run(version(1, serving={"image": "triton:2"}), workspace)

    assert f"apply Deployment {version(1).id}" in cluster.changes


def test_a_budget_for_disruptions_goes_when_one_replica_is_left(workspace, cluster):
    roll_out.run(version(1, serving={"replicas": {"min": 2, "max": 2}}), workspace)
    assert cluster.get("PodDisruptionBudget", version(1).id) is not None

    roll_out.run(version(1), workspace)

    assert cluster.get("PodDisruptionBudget", version(1).id) is None


def test_the_model_belongs_to_one_run_at_a_time(workspace, cluster):
    roll_out.run(version(1), workspace)

    with pytest.raises(ConflictError) as caught:
        roll_out.run(version(2), workspace)

    assert caught.value.what == "a release of demo is in progress"
    assert caught.value.found == "run run-1, which has held the lease since 2026-01-01 00:00:00 UTC"
    assert standing(cluster)["deployments"] == [version(1).id]


def test_a_run_that_was_killed_loses_the_model_after_a_while_and_its_candidate_goes(workspace, cluster):
    roll_out.run(version(1), workspace)
    workspace.clock.sleep(3600)

    roll_out.run(version(2), workspace)

    assert standing(cluster)["services"] == {"demo-candidate": version(2).id}
    assert standing(cluster)["deployments"] == [version(2).id]


def test_a_run_that_airflow_knows_to_have_ended_loses_the_model_and_its_candidate_at_once(workspace, cluster):
    live = released(workspace, 1)
    roll_out.run(version(2), replace(workspace, dag_run="release__demo/run-2"))
    version_of_lease = cluster.lease_holder("slipway-demo").version

    roll_out.run(version(3), replace(workspace, ended_holders={"slipway-demo": version_of_lease}))

    assert cluster.lease_holder("slipway-demo").holder == "run-3"
    assert standing(cluster)["deployments"] == [live.id, version(3).id]
    assert standing(cluster)["services"] == {"demo": live.id, "demo-candidate": version(3).id}


def test_a_promotion_that_died_halfway_is_undone_when_the_next_run_takes_over(workspace, cluster):
    live, dead = released(workspace, 1), version(2)
    roll_out.run(dead, workspace)
    judged(workspace, dead)
    cluster.dies_at = (
        len(cluster.changes) + 1,
        "after",
    )  # the lease was renewed, then the Service pointed at the release
    with pytest.raises(KilledError):
        promote.run(dead, workspace)
    assert standing(cluster)["services"]["demo"] == dead.id
    workspace.clock.sleep(3600)

    roll_out.run(version(3), workspace)

    assert standing(cluster)["services"] == {"demo": live.id, "demo-candidate": version(3).id}
    assert standing(cluster)["deployments"] == [live.id, version(3).id]


@pytest.mark.parametrize(
    ("dag_run", "remedy"),
    [
        ("release__demo/manual__1", "mark Airflow's run release__demo/manual__1 as failed"),
        ("", "Airflow did not start that run"),
    ],
)
def test_a_person_is_told_what_someone_without_a_shell_in_the_pods_can_do(workspace, dag_run, remedy):
    roll_out.run(version(1), replace(workspace, dag_run=dag_run))

    with pytest.raises(ConflictError) as caught:
        roll_out.run(version(2), workspace)

    assert remedy in caught.value.remedy
    assert "python -m" not in str(caught.value)


@pytest.mark.parametrize("error", [InputError("CrashLoopBackOff"), UnavailableError("not available after 600 s")])
def test_a_candidate_that_does_not_come_up_fails_the_step_and_leaves_live_alone(workspace, cluster, error):
    live = released(workspace, 1)
    cluster.unavailable.add(version(2).id)
    cluster.failing[version(2).id] = error

    with pytest.raises(type(error)):
        roll_out.run(version(2), workspace)

    assert standing(cluster)["services"]["demo"] == live.id


def test_a_site_that_cannot_serve_the_release_says_so(workspace):
    engine = {"kind": "vllm", "gpu": "NVIDIA-L4", "max_batch_size": 1, "max_input_tokens": 8, "max_sequence_tokens": 16}

    with refused(what="engine.gpu NVIDIA-L4 is not at site"):
        roll_out.run(version(1, engine=engine, quantization={"format": "none"}), workspace)


def test_a_conflict_is_no_timeout_though_looking_at_leases_takes_time(workspace, cluster):
    roll_out.run(version(1), workspace)
    acquire = cluster.acquire_lease

    def slowly(*arguments, **options):
        workspace.clock.sleep(0.2)
        return acquire(*arguments, **options)

    cluster.acquire_lease = slowly

    with pytest.raises(ConflictError) as caught:
        roll_out.run(version(2), workspace)

    assert caught.value.what == "a release of demo is in progress"
    assert caught.value.found.startswith("run run-1,")
