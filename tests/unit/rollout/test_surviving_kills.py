"""A step that is killed anywhere and run again ends where it would have ended."""

import pytest

from slipway.tasks.rollout.act.revert import revert
from slipway.tasks.steps import promote, roll_back, roll_out
from tests.fakes.documents.rollouts import channel, judged, published, released, version
from tests.fakes.kube.cluster import KilledError, in_memory, standing
from tests.fakes.store.object_store import MemoryObjectStore

NEW = version(3, rollout={"keep": 1}, serving={"replicas": {"min": 2, "max": 2}})


class MortalStore(MemoryObjectStore):
    """Kills the process before or after the channel is written."""

    dies_at = None

    def put_if(self, uri, data, *, etag):
        moment, self.dies_at = self.dies_at, None
        if moment == "before":
            raise KilledError("before the channel was written")
        new = super().put_if(uri, data, etag=etag)
        if moment == "after":
            raise KilledError("after the channel was written")
        return new


def world(folder, step):
    """Two releases promoted, one after the other, and a third one as far as `step` needs it."""
    workspace = in_memory(folder, store=MortalStore())
    released(workspace, 1)
    released(workspace, 2)
    published(workspace, NEW)
    if step in (promote, roll_back):
        roll_out.run(NEW, workspace)
        judged(workspace, NEW, "passed" if step is promote else "failed")
    workspace.connection.changes.clear()
    return workspace


def act(step, workspace):
    return revert("demo", workspace, run="run-9", reason="drill") if step is revert else step.run(NEW, workspace)


def ended(workspace):
    found = channel(workspace)
    events = [(event.event, event.release_id) for event in found.history]
    return standing(workspace.connection), found.live.release_id, [e.release_id for e in found.previous], events


def changes_of(step, folder):
    workspace = world(folder, step)
    act(step, workspace)
    return len(workspace.connection.changes), ended(workspace)


@pytest.mark.parametrize("step", [roll_out, promote, roll_back, revert], ids=lambda step: step.__name__)
def test_a_kill_at_any_change_of_the_cluster_costs_nothing_but_time(step, tmp_path):
    count, wanted = changes_of(step, tmp_path)
    assert count >= 3
    for number in range(count):
        for moment in ("before", "after"):
            workspace = world(tmp_path, step)
            workspace.connection.dies_at = (number, moment)
            with pytest.raises(KilledError):
                act(step, workspace)

            act(step, workspace)

            assert ended(workspace) == wanted, f"killed {moment} change {number}"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", [promote, roll_back, revert], ids=lambda step: step.__name__)
def test_a_kill_at_the_channel_costs_nothing_but_time(step, moment, tmp_path):
    _, wanted = changes_of(step, tmp_path)
    workspace = world(tmp_path, step)
    workspace.store.dies_at = moment
    with pytest.raises(KilledError):
        act(step, workspace)

    act(step, workspace)

    assert ended(workspace) == wanted


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_promotion_that_was_killed_before_the_channel_can_be_rolled_back(moment, tmp_path):
    count, _ = changes_of(promote, tmp_path)
    for number in range(count):
        workspace = world(tmp_path, promote)
        before = ended(workspace)[1]
        workspace.connection.dies_at = (number, moment)
        with pytest.raises(KilledError):
            promote.run(NEW, workspace)

        roll_back.run(NEW, workspace)

        found, live = standing(workspace.connection), channel(workspace).live.release_id
        assert found["services"] == {"demo": live}, f"killed {moment} change {number}"
        assert live in found["deployments"]
        assert live in {before, NEW.id}
