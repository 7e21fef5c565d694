"""Disaster: the cluster is lost. Channel, releases and artifacts are enough to serve again on an empty one."""

from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.serving.rendered.manifests import WORKLOADS
from slipway.tasks.steps import revert
from tests.fakes.documents import rollouts

SERVING = {"image": "test/triton:good", "ready_timeout_s": 60}


def lose_everything(cluster):
    """Delete every object of the serving namespace that Slipway made."""
    for kind in (*WORKLOADS, "Service", "PodDisruptionBudget", "Lease"):
        for item in cluster.find(kind, {}):
            cluster.delete(kind, item["metadata"]["name"])


def test_a_model_answers_again_after_its_cluster_was_lost(workspace, cluster, asking):
    rollouts.released(workspace, 1, serving=SERVING)
    second = rollouts.released(workspace, 2, serving=SERVING)
    lose_everything(cluster)
    assert cluster.live_address("demo") is None

    revert.run(RevertRequest(name="demo", run="run-9", to="live"), workspace)

    with asking(cluster.live_address("demo")) as clients:
        clients.after(20)
    assert clients.failures == []
    assert [item["metadata"]["name"] for item in cluster.find("Deployment", {})] == [second.id]
