"""A scaler and the replicas that it set go over to the next release and back, while clients ask.

The embedded cluster scales nothing by itself: the test sets replicas as a scaler would, by the workload's `replicas`.
"""

from dataclasses import replace

import pytest

from slipway.tasks.contracts.engine.scaling import Scaler
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.steps import revert
from tests.fakes.documents import rollouts

SERVING = {
    "image": "test/triton:good",
    "ready_timeout_s": 90,
    "replicas": {"min": 1, "max": 3},
    "autoscale": {"metric": "requests_in_flight", "target": 4},
}


@pytest.fixture
def workspace(workspace):
    """The test's workspace on a site with a scaler."""
    serving = workspace.site.serving.model_copy(update={"scaler": Scaler(kind="hpa")})
    return replace(workspace, site=workspace.site.model_copy(update={"serving": serving}))


def state(cluster, release):
    """Replicas and pods that are ready of a release, and what the scaler scales."""
    found = cluster.get("Deployment", release.id)
    target = cluster.get("HorizontalPodAutoscaler", "demo")["spec"]["scaleTargetRef"]["name"]
    return found["spec"]["replicas"], found["status"].get("availableReplicas"), target


def test_replicas_and_scaler_follow_the_live_release_and_no_request_fails(workspace, cluster, asking):
    first = rollouts.released(workspace, 1, serving=SERVING)
    assert state(cluster, first) == (1, 1, first.id)
    cluster.scale("Deployment", first.id, 2)
    cluster.wait_available("Deployment", first.id, 90)

    with asking(cluster.live_address("demo")) as clients:
        clients.after(20)
        second = rollouts.released(workspace, 2, serving=SERVING)
        clients.after(20)
        carried = state(cluster, second)
        cluster.scale("Deployment", second.id, 3)
        cluster.wait_available("Deployment", second.id, 90)
        revert.run(RevertRequest(name="demo", run="run-9", reason="drill"), workspace)
        clients.after(20)

    assert carried == (2, 2, second.id)
    assert state(cluster, first) == (3, 3, first.id)
    assert clients.failures == []
