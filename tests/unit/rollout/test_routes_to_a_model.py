"""Routes are made with the live Service, stay as they are while releases change, and go with it."""

import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.steps import promote, revert, roll_back, roll_out
from tests.fakes.documents.rollouts import judged, published, released, version
from tests.fakes.kube.cluster import in_memory
from tests.support.refused import refused

HOSTS = {"host": "{name}.example.com", "grpc_host": "{name}-grpc.example.com"}
INGRESS = {"routes": {"kind": "ingress", **HOSTS}}
GATEWAY = {"routes": {"kind": "gateway", "gateway": {"name": "models"}, **HOSTS}}
EXPOSED = {"serving": {"exposure": "ingress"}}
KINDS = {"Ingress", "HTTPRoute", "GRPCRoute"}


@pytest.fixture
def workspace(tmp_path):
    return in_memory(tmp_path, serving=GATEWAY)


def routes(cluster):
    return sorted((kind, name) for kind, name in cluster.objects if kind in KINDS)


def test_a_promoted_model_is_routed_to_and_a_candidate_is_not(workspace, cluster):
    made = version(1, **EXPOSED)
    roll_out.run(made, workspace)
    assert routes(cluster) == []
    judged(workspace, made)

    promote.run(made, workspace)

    assert routes(cluster) == [("GRPCRoute", "demo"), ("HTTPRoute", "demo")]


def test_a_promotion_and_a_roll_back_touch_no_route(workspace, cluster):
    released(workspace, 1, **EXPOSED)
    cluster.changes.clear()

    released(workspace, 2, **EXPOSED)
    revert.run(RevertRequest(name="demo", run="run-9", reason="it repeats itself"), workspace)

    assert [change for change in cluster.changes if "Route" in change] == []


def test_a_model_that_is_no_longer_exposed_loses_its_routes(workspace, cluster):
    released(workspace, 1, **EXPOSED)

    released(workspace, 2)

    assert routes(cluster) == []


def test_the_first_release_of_a_model_leaves_no_route_when_it_fails(workspace, cluster):
    made = version(1, **EXPOSED, rollout={"bake_s": 60})
    published(workspace, made)
    roll_out.run(made, workspace)
    judged(workspace, made)
    sleep = workspace.clock.sleep
    workspace.clock.sleep = lambda seconds: (cluster.unavailable.add(made.id), sleep(seconds))
    with pytest.raises(InputError):
        promote.run(made, workspace)
    assert routes(cluster) != []

    roll_back.run(made, workspace)

    assert set(cluster.objects) == set()


def test_a_site_that_changed_to_ingresses_keeps_no_route_of_the_gateway(workspace, cluster, tmp_path):
    released(workspace, 1, **EXPOSED)

    released(in_memory(tmp_path, store=workspace.store, cluster=cluster, serving=INGRESS), 2, **EXPOSED)

    assert routes(cluster) == [("Ingress", "demo"), ("Ingress", "demo.grpc")]


def test_a_route_of_someone_else_stops_the_release_before_anything_is_deployed(workspace, cluster):
    cluster.apply([{"kind": "HTTPRoute", "metadata": {"name": "demo"}, "spec": {}}])

    with refused(what="HTTPRoute slipway-serving/demo exists, and Slipway did not make it"):
        roll_out.run(version(1, **EXPOSED), workspace)

    assert cluster.find("Deployment", {}) == []


def test_an_ingress_of_someone_else_is_left_alone_beside_a_model_that_is_not_exposed(tmp_path):
    workspace = in_memory(tmp_path, serving=INGRESS)
    theirs = {"kind": "Ingress", "metadata": {"name": "demo", "labels": {"team": "a"}}, "spec": {}}
    workspace.connection.apply([theirs])

    released(workspace, 1)

    assert workspace.connection.get("Ingress", "demo") == theirs


def test_a_roll_out_where_the_site_says_nothing_of_routes_is_refused_before_anything_is_deployed(tmp_path):
    workspace = in_memory(tmp_path)

    with refused(what="serving.exposure ingress needs a host"):
        roll_out.run(version(1, **EXPOSED), workspace)

    assert workspace.connection.find("Deployment", {}) == []
