"""After the loss of a cluster, the channel and the releases are enough to serve again."""

from dataclasses import replace

import pytest

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.steps import revert, roll_out
from tests.fakes.documents.rollouts import channel, published, released, version
from tests.fakes.kube.cluster import in_memory, standing

LOST = RevertRequest(name="demo", run="run-9", to="live")


@pytest.fixture
def new(workspace, tmp_path):
    """An empty cluster beside the object store of the lost one."""
    (tmp_path / "new").mkdir()
    return in_memory(tmp_path / "new", store=workspace.store)


def test_an_empty_cluster_serves_what_the_channel_names(workspace, new):
    released(workspace, 1)
    second = released(workspace, 2)
    before = channel(workspace)

    told = revert.run(LOST, new)

    assert standing(new.connection) == {"deployments": [second.id], "services": {"demo": second.id}, "leases": []}
    assert channel(new) == before
    assert told.summary.startswith(f"{second.id} is live, as its channel says: deployed {second.id}")


def test_a_second_restore_changes_nothing(workspace, new):
    released(workspace, 1)
    revert.run(LOST, new)
    before = standing(new.connection)

    told = revert.run(LOST, new)

    assert (told.data["moves"], standing(new.connection)) == ([], before)


def test_a_restored_model_can_go_back_to_its_previous_release(workspace, new):
    first, _ = released(workspace, 1), released(workspace, 2)
    revert.run(LOST, new)

    revert.run(RevertRequest(name="demo", run="run-10"), new)

    assert standing(new.connection)["services"] == {"demo": first.id}


def test_a_model_without_a_live_release_has_nothing_to_restore(new):
    with pytest.raises(InputError) as caught:
        revert.run(LOST, new)

    assert "slipway import" in caught.value.remedy


@pytest.mark.parametrize("live", [False, True])
def test_what_a_run_left_that_could_not_roll_back_is_removed(workspace, live):
    first = released(workspace, 1) if live else None
    left = version(2)
    published(workspace, left)
    roll_out.run(left, workspace)
    cluster = workspace.connection
    lease = cluster.lease_holder("slipway-demo")
    # as Airflow's task passes it on for a holder that it knows to have ended
    later = replace(workspace, ended_holders={"slipway-demo": lease.version})

    told = revert.run(LOST, later)

    kept = [first.id] if live else []
    assert standing(cluster) == {"deployments": kept, "services": {"demo": kept[0]} if live else {}, "leases": []}
    assert ("is live, as its channel says" in told.summary) is True
    assert f"retired {left.id}" in told.summary
