"""A release, a drill, a rollback and a restore of one model at once: in every order one of them has the model at a time."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slipway.tasks.contracts.errors import ConflictError, PipelineError, UnavailableError
from slipway.tasks.rollout.act.revert import restore, revert
from slipway.tasks.steps import drill, promote, roll_back, roll_out
from tests.fakes.documents.rollouts import channel, judged, published, released, version
from tests.fakes.kube.cluster import in_memory, standing
from tests.fakes.stepping import Actor, play
from tests.unit.rollout.test_drilling import ASKED, AskedLoad

pytestmark = pytest.mark.timeout(200)  # many orders, with threads
SECOND, THIRD = version(2).id, version(3).id
WHO = ("release", "drill", "revert", "restore")
MOST_OPERATIONS = 60


class World:
    """A live release, a warm previous one, and a published third one."""

    def __init__(self, folder):
        self.workspace = in_memory(folder)
        self.cluster = self.workspace.connection
        released(self.workspace, 1)
        released(self.workspace, 2)
        published(self.workspace, version(3))
        self.before = len(channel(self.workspace).history)

    def within(self, cluster, clock):
        return replace(self.workspace, connection=cluster, clock=clock)

    def release(self, *place):
        """As its DAG does: a step that fails is followed by roll-back."""
        made, workspace = version(3), self.within(*place)
        try:
            roll_out.run(made, workspace)
            judged(workspace, made)
            promote.run(made, workspace)
        except PipelineError:
            roll_back.run(made, workspace)
            raise

    def drill(self, cluster, clock):
        return drill.run(ASKED, self.within(cluster, clock), load_of=AskedLoad(clock))

    def revert(self, *place):
        revert("demo", self.within(*place), run="run-8", reason="slow")

    def restore(self, *place):
        restore("demo", self.within(*place), run="run-7")

    def play(self, order):
        """Who ended how."""
        actors = {name: Actor(getattr(self, name)) for name in WHO}
        play([*actors.values()], order, self.cluster, self.workspace.clock)
        return {name: actor.error for name, actor in actors.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("worlds")


ORDERS = st.lists(st.tuples(st.integers(0, len(WHO) - 1), st.integers(1, MOST_OPERATIONS)), max_size=6)
"""Who goes on, and for how many operations."""


@given(order=ORDERS.map(lambda turns: [who for who, count in turns for _ in range(count)]))
@settings(
    max_examples=12, deadline=None, phases=[Phase.reuse, Phase.generate], suppress_health_check=[HealthCheck.too_slow]
)
def test_whoever_comes_second_is_refused_and_what_serves_is_what_the_channel_says(folder, order):
    world = World(folder)

    errors = world.play(order)

    assert all(isinstance(error, ConflictError | UnavailableError | None) for error in errors.values()), errors
    named, found = channel(world.workspace), standing(world.cluster)
    kept = {named.live.release_id, *(entry.release_id for entry in named.previous)}
    assert (found["services"], found["leases"]) == ({"demo": named.live.release_id}, [])
    assert named.live.release_id in found["deployments"]
    assert set(found["deployments"]) <= kept
    added = named.history[: len(named.history) - world.before]
    events = {name for name, error in errors.items() if error is None}
    assert {entry.run for entry in added if entry.event in {"promoted", "rolled-back"}} == {
        run for name, run in (("release", "run-3"), ("revert", "run-8")) if name in events
    }


@pytest.mark.parametrize("second", ["revert", "restore"])
def test_a_way_back_that_began_as_a_release_ended_changes_nothing(folder, second):
    """It reads the channel first; then the whole release passes."""
    world = World(folder)
    before = [WHO.index("release")] * 10 * MOST_OPERATIONS

    errors = world.play([*before, *[WHO.index(second)] * MOST_OPERATIONS])

    assert errors["release"] is None
    assert "a release or rollback of demo ended just as this one began" in str(errors[second])
    assert standing(world.cluster) == {"deployments": [SECOND, THIRD], "services": {"demo": THIRD}, "leases": []}
