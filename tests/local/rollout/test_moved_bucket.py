"""Disaster: the bucket is lost, and a back-up was imported into another one. Pods are replaced while clients ask."""

from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.serving.rendered.manifests import release_uris
from slipway.tasks.steps import revert
from tests.fakes.documents import rollouts

SERVING = {"image": "test/triton:good", "ready_timeout_s": 60}


def test_restore_replaces_pods_that_would_fetch_from_the_lost_bucket_and_no_request_fails(workspace, cluster, asking):
    live = rollouts.released(workspace, 1, serving=SERVING)
    labels = {"slipway.dev/release": live.id}
    before = set(cluster.ready_pods(labels))
    there = rollouts.moved(workspace)

    with asking(cluster.live_address("demo")) as clients:
        clients.after(20)
        revert.run(RevertRequest(name="demo", run="run-9", to="live"), there)
        clients.after(20)

    (deployment,) = cluster.find("Deployment", {})
    assert clients.failures == []
    assert list(release_uris(deployment).values()) == [there.layout.release("demo", live.id)]
    assert not before & set(cluster.ready_pods(labels))
