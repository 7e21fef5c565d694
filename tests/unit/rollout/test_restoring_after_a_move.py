"""After a model moved to another bucket, `slipway restore` makes its pods fetch it from there."""

import pytest

from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.serving.rendered.manifests import release_uris
from slipway.tasks.steps import revert
from tests.fakes.documents.rollouts import channel, moved, released
from tests.fakes.kube.cluster import standing

RESTORE = RevertRequest(name="demo", run="run-9", to="live")
ROLL_BACK = RevertRequest(name="demo", run="run-10")
GROUP = {"serving": {"group": "chat"}}


def fetched(cluster):
    """Addresses of the releases that each server's pods fetch."""
    servers = cluster.find("Deployment", {})
    return {item["metadata"]["name"]: sorted(release_uris(item).values()) for item in servers}


def test_the_live_release_is_fetched_from_the_new_bucket_and_nothing_else_changes(workspace, cluster):
    made = released(workspace, 1)
    there = moved(workspace)
    before = standing(cluster)

    told = revert.run(RESTORE, there)

    assert fetched(cluster) == {made.id: [there.layout.release("demo", made.id)]}
    assert told.data["moves"] == [f"deployed {made.id}"]
    assert standing(cluster) == before
    assert (made.id, "Restored", "run-9") in cluster.told


def test_a_second_restore_changes_nothing(workspace, cluster):
    released(workspace, 1)
    there = moved(workspace)
    revert.run(RESTORE, there)
    objects = dict(cluster.objects)

    told = revert.run(RESTORE, there)

    assert (told.data["moves"], cluster.objects) == ([], objects)


def test_restore_ends_only_when_pods_of_the_new_bucket_are_available(workspace, cluster):
    made = released(workspace, 1)
    cluster.unavailable.add(made.id)
    cluster.failing[made.id] = UnavailableError("not available after 600 s")

    with pytest.raises(UnavailableError, match="not available after 600 s"):
        revert.run(RESTORE, moved(workspace))

    assert standing(cluster)["leases"] == []


def test_a_roll_back_to_a_warm_release_fetches_it_from_the_new_bucket_before_it_takes_traffic(workspace, cluster):
    first, _ = released(workspace, 1), released(workspace, 2)
    there = moved(workspace)
    cluster.changes.clear()

    revert.run(ROLL_BACK, there)

    assert fetched(cluster) == {first.id: [there.layout.release("demo", first.id)]}
    applied = [change for change in cluster.changes if change.startswith("apply")]
    assert applied == [f"apply Deployment {first.id}", "apply Service demo"]
    assert channel(there).live.release_id == first.id


def test_every_model_of_a_group_is_fetched_from_the_new_bucket(workspace, cluster):
    pair = released(workspace, 1, name="llama", **GROUP), released(workspace, 2, name="mistral", **GROUP)
    there = moved(workspace)
    before = standing(cluster)

    revert.run(RevertRequest(name="llama", run="run-9", to="live"), there)

    (addresses,) = fetched(cluster).values()
    assert addresses == sorted(there.layout.release(made.spec.name, made.id) for made in pair)
    assert standing(cluster) == before
