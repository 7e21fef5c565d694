"""The scaler follows the live release, and no release takes the traffic with fewer pods than served before."""

import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.steps import promote, revert, roll_back, roll_out
from tests.fakes.documents.gpu_site import gpu_site
from tests.fakes.documents.rollouts import channel, judged, published, released, version
from tests.fakes.kube.cluster import KilledError, in_memory
from tests.fakes.releases import SPEC

HPA, KEDA = {"scaler": {"kind": "hpa"}}, {"scaler": {"kind": "keda", "prometheus": "http://prometheus:9090"}}
SCALED = {"serving": {"replicas": {"min": 1, "max": 8}, "autoscale": {"metric": "request_rate", "target": 5}}}
ASKED = RevertRequest(name="demo", run="run-9", reason="it repeats itself")


@pytest.fixture
def workspace(tmp_path):
    return in_memory(tmp_path, serving=HPA)


@pytest.fixture
def cluster(workspace):
    return workspace.connection


def rolled_out(workspace, number, **changes):
    made = version(number, **{**SCALED, **changes})
    published(workspace, made)
    roll_out.run(made, workspace)
    return made


def replicas(cluster, made):
    return cluster.get("Deployment", made.id)["spec"]["replicas"]


def target(cluster, kind="HorizontalPodAutoscaler"):
    found = cluster.get(kind, "demo")
    return found and found["spec"]["scaleTargetRef"]["name"]


def scalers(cluster):
    return [(kind, name) for kind, name in cluster.objects if kind in {"HorizontalPodAutoscaler", "ScaledObject"}]


def test_a_promoted_release_is_scaled_between_its_bounds(workspace, cluster):
    made = released(workspace, 1, **SCALED)

    found = cluster.get("HorizontalPodAutoscaler", "demo")["spec"]

    assert found["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": made.id}
    assert (found["minReplicas"], found["maxReplicas"]) == (1, 8)


def test_a_candidate_is_not_scaled(workspace, cluster):
    rolled_out(workspace, 1)

    assert scalers(cluster) == []


def test_a_release_takes_over_with_the_replicas_that_serve_and_the_scaler_follows(workspace, cluster):
    first = released(workspace, 1, **SCALED)
    cluster.scale("Deployment", first.id, 5)
    cluster.wait_available("Deployment", first.id, 1)

    second = released(workspace, 2, **SCALED)

    assert (replicas(cluster, second), target(cluster)) == (5, second.id)
    since = cluster.changes[cluster.changes.index(f"apply Deployment {second.id}") :]
    order = [f"scale Deployment {second.id} to 5", "apply Service demo", "apply HorizontalPodAutoscaler demo"]
    assert [change for change in since if change in order] == order


def test_replicas_beyond_the_new_bounds_are_not_carried_over(workspace, cluster):
    first = released(workspace, 1, **SCALED)
    cluster.scale("Deployment", first.id, 8)
    smaller = {"replicas": {"min": 1, "max": 3}, "autoscale": {"metric": "request_rate", "target": 5}}

    second = released(workspace, 2, serving=smaller)

    assert replicas(cluster, second) == 3


def test_replicas_are_carried_back_to_the_release_before(workspace, cluster):
    first, second = (released(workspace, number, **SCALED) for number in (1, 2))
    cluster.scale("Deployment", second.id, 6)

    revert.run(ASKED, workspace)

    assert (replicas(cluster, first), target(cluster)) == (6, first.id)
    assert scalers(cluster) == [("HorizontalPodAutoscaler", "demo")]


def test_a_live_release_that_is_deployed_again_keeps_its_replicas(workspace, cluster):
    first = released(workspace, 1, **SCALED)
    cluster.scale("Deployment", first.id, 4)
    cluster.wait_available("Deployment", first.id, 1)
    cluster.objects["Deployment", first.id]["metadata"]["annotations"]["slipway.dev/manifest-sha256"] = "yesterday's"

    roll_out.run(first, workspace)

    assert f"apply Deployment {first.id}" in cluster.changes[-6:]
    assert replicas(cluster, first) == 4


def test_a_release_with_fixed_replicas_takes_over_without_a_scaler(workspace, cluster):
    released(workspace, 1, **SCALED)

    second = released(workspace, 2)

    assert (scalers(cluster), replicas(cluster, second)) == ([], 1)


def test_a_refused_candidate_leaves_the_scaler_where_it_was(workspace, cluster):
    first = released(workspace, 1, **SCALED)
    made = rolled_out(workspace, 2)
    judged(workspace, made, "failed")

    roll_back.run(made, workspace)

    assert target(cluster) == first.id


def test_a_release_that_fails_while_it_is_watched_gives_scaler_and_replicas_back(workspace, cluster):
    first = released(workspace, 1, **SCALED)
    made = rolled_out(workspace, 2, rollout={"bake_s": 60})
    judged(workspace, made)
    sleep, grown = workspace.clock.sleep, []

    def fails(seconds):
        if not grown:
            grown.append(cluster.scale("Deployment", made.id, 3))
        cluster.unavailable.add(made.id)
        sleep(seconds)

    workspace.clock.sleep = fails
    with pytest.raises(InputError):
        promote.run(made, workspace)
    assert target(cluster) == made.id

    roll_back.run(made, workspace)

    assert (replicas(cluster, first), target(cluster)) == (3, first.id)
    assert cluster.get("Deployment", made.id) is None


def test_a_release_that_grows_while_it_is_watched_has_not_failed(workspace, cluster):
    made = rolled_out(workspace, 1, rollout={"bake_s": 60})
    judged(workspace, made)
    sleep = workspace.clock.sleep
    workspace.clock.sleep = lambda seconds: (cluster.scale("Deployment", made.id, 4), sleep(seconds))

    promote.run(made, workspace)

    assert channel(workspace).live.release_id == made.id


def test_the_first_release_of_a_model_leaves_no_scaler_when_it_fails(workspace, cluster):
    made = rolled_out(workspace, 1, rollout={"bake_s": 60})
    judged(workspace, made)
    sleep = workspace.clock.sleep
    workspace.clock.sleep = lambda seconds: (cluster.unavailable.add(made.id), sleep(seconds))
    with pytest.raises(InputError):
        promote.run(made, workspace)

    roll_back.run(made, workspace)

    assert set(cluster.objects) == set()


def test_a_site_that_changed_to_keda_keeps_one_scaler(workspace, cluster, tmp_path):
    released(workspace, 1, **SCALED)
    with_keda = in_memory(tmp_path, store=workspace.store, cluster=cluster, serving=KEDA)

    second = released(with_keda, 2, **SCALED)

    assert scalers(cluster) == [("ScaledObject", "demo")]
    assert target(cluster, "ScaledObject") == second.id


def test_a_scaler_of_someone_else_stops_the_release_before_anything_is_deployed(workspace, cluster):
    theirs = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "demo"}, "spec": {}}
    cluster.apply([theirs])

    with pytest.raises(InputError, match="Slipway did not make it"):
        rolled_out(workspace, 1)

    assert cluster.find("Deployment", {}) == []


def test_a_scaler_of_someone_else_is_left_alone(workspace, cluster):
    theirs = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "demo"}, "spec": {"theirs": True}}
    made = rolled_out(workspace, 1)
    judged(workspace, made)
    cluster.apply([theirs])

    promote.run(made, workspace)

    assert cluster.get("HorizontalPodAutoscaler", "demo") == theirs


def test_without_a_scaler_at_the_site_no_kind_of_scaler_is_looked_up(tmp_path):
    workspace = in_memory(tmp_path)
    asked, get = [], workspace.connection.get
    workspace.connection.get = lambda kind, name: (asked.append(kind), get(kind, name))[1]

    released(workspace, 1)

    assert not {"HorizontalPodAutoscaler", "ScaledObject"} & set(asked)


def test_a_release_over_nodes_is_scaled_by_its_set(tmp_path):
    engine = {
        **SPEC["engine"],
        "kind": "trt-engine",
        "gpu": "NVIDIA-A10G",
        "tensor_parallel": 4,
        "pipeline_parallel": 2,
    }
    spec = {**SCALED, "quantization": {"format": "none"}, "engine": engine}
    places = gpu_site(serving=HPA).model_dump(mode="json", exclude={"apiVersion", "kind", "name"})
    workspace = in_memory(tmp_path, **places)

    first, second = (released(workspace, number, **spec) for number in (1, 2))

    found = workspace.connection.get("HorizontalPodAutoscaler", "demo")["spec"]["scaleTargetRef"]
    assert found == {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": second.id}
    assert workspace.connection.get("LeaderWorkerSet", first.id) is not None


def three_releases(folder, action):
    """Two releases promoted, the live one scaled to five pods, and a third one as far as `action` needs it."""
    workspace = in_memory(folder, serving=HPA)
    cluster = workspace.connection
    released(workspace, 1, **SCALED)
    live = released(workspace, 2, **SCALED)
    cluster.scale("Deployment", live.id, 5)
    cluster.wait_available("Deployment", live.id, 1)
    asked = ASKED
    if action is not revert:
        asked = rolled_out(workspace, 3, rollout={"keep": 1})
        judged(workspace, asked, "passed" if action is promote else "failed")
    cluster.changes.clear()
    return workspace, asked


@pytest.mark.parametrize("action", [promote, roll_back, revert], ids=lambda step: step.__name__.rpartition(".")[2])
def test_a_kill_anywhere_costs_no_pod_and_no_scaler(action, tmp_path):
    workspace, asked = three_releases(tmp_path, action)
    action.run(asked, workspace)
    kills = [(number, moment) for number in range(len(workspace.connection.changes)) for moment in ("before", "after")]
    assert len(kills) >= 6

    for kill in kills:
        workspace, asked = three_releases(tmp_path, action)
        cluster = workspace.connection
        cluster.dies_at = kill
        with pytest.raises(KilledError):
            action.run(asked, workspace)
        serving = cluster.get("Service", "demo")["spec"]["selector"]["slipway.dev/release"]
        assert cluster.get("Deployment", serving)["status"]["availableReplicas"] == 5, kill

        action.run(asked, workspace)

        live = channel(workspace).live.release_id
        assert (target(cluster), cluster.get("Deployment", live)["spec"]["replicas"]) == (live, 5), kill
        assert scalers(cluster) == [("HorizontalPodAutoscaler", "demo")], kill


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_promotion_that_was_killed_and_rolled_back_gives_scaler_and_replicas_back(moment, tmp_path):
    workspace, asked = three_releases(tmp_path, promote)
    promote.run(asked, workspace)
    count = len(workspace.connection.changes)

    for number in range(count):
        workspace, asked = three_releases(tmp_path, promote)
        cluster = workspace.connection
        cluster.dies_at = (number, moment)
        with pytest.raises(KilledError):
            promote.run(asked, workspace)

        roll_back.run(asked, workspace)

        live = channel(workspace).live.release_id
        assert cluster.get("Service", "demo")["spec"]["selector"]["slipway.dev/release"] == live, number
        assert (target(cluster), cluster.get("Deployment", live)["spec"]["replicas"]) == (live, 5), number
        assert scalers(cluster) == [("HorizontalPodAutoscaler", "demo")], number
