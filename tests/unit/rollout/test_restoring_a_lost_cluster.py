"""After the loss of a cluster, the channel and the releases are enough to serve again."""

import pytest

from tasks.contracts.errors import InputError
from tasks.contracts.stored.release import RevertRequest
from tasks.steps import revert
from tests.fakes.cluster import in_memory, standing
from tests.fakes.rollouts import channel, released

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
