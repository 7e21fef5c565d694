"""A candidate beside the live release; no traffic moves."""

import pytest

from tasks.contracts.errors import ConflictError, InputError, UnavailableError
from tasks.steps import roll_out
from tests.fakes.cluster import standing
from tests.fakes.rollouts import released, version


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

    with pytest.raises(
        ConflictError, match=r"demo is in progress: run run-1 has held it since 2026-01-01 00:00:00 UTC"
    ):
        roll_out.run(version(2), workspace)

    assert standing(cluster)["deployments"] == [version(1).id]


def test_a_run_that_was_killed_lets_go_after_a_while(workspace, cluster):
    roll_out.run(version(1), workspace)
    workspace.clock.sleep(3600)

    roll_out.run(version(2), workspace)

    assert standing(cluster)["services"] == {"demo-candidate": version(2).id}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rollout": {"strategy": "canary"}}, "canary needs Gateway API"),
        ({"serving": {"exposure": "ingress"}}, "ingress is not there yet"),
    ],
)
def test_what_is_not_there_yet_is_refused_before_anything_is_touched(workspace, cluster, changes, words):
    with pytest.raises(InputError, match=words):
        roll_out.run(version(1, **changes), workspace)

    assert cluster.changes == []


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

    with pytest.raises(InputError, match=r"shapes\.gpu"):
        roll_out.run(version(1, engine=engine, quantization={"format": "none"}), workspace)


def test_a_conflict_is_no_timeout_though_looking_at_leases_takes_time(workspace, cluster):
    roll_out.run(version(1), workspace)
    acquire = cluster.acquire_lease

    def slowly(*arguments):
        workspace.clock.sleep(0.2)
        return acquire(*arguments)

    cluster.acquire_lease = slowly

    with pytest.raises(ConflictError, match="a release of demo is in progress: run run-1"):
        roll_out.run(version(2), workspace)
