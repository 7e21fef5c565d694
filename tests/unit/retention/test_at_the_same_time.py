"""Retention beside a release and beside itself: in every order of their operations, no artifact is half there.

Nothing here is protected by its age: the policy has no grace period, and to retention everything is old.
"""

import dataclasses
import itertools
import json
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.adapters.store.heads import TAKEOVER_S, Heads, exists
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.site.retention import RetentionPolicy, RetentionRequest
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.retention.ledger import Ledger
from slipway.tasks.retention.sweep import Sweep
from tests.fakes.clock import ManualClock
from tests.fakes.kube.cluster import in_memory
from tests.fakes.releases import release
from tests.fakes.stepping import Actor, CrashedError, play
from tests.fakes.store.object_store import MemoryObjectStore
from tests.support.seeds import dice

pytestmark = pytest.mark.timeout(200)  # hundreds of orders, with threads
LAYOUT = Layout("s3://bucket")
ANY_AGE = RetentionPolicy.model_construct(schedule=None, releases_per_model=1, days=0, evidence_days=0, grace_h=0)
FAR = timedelta(days=4000)
PLANNED = release()
KEY = PLANNED.plan.stages["build"].key
RELEASE = LAYOUT.release("demo", PLANNED.id)
PREFIX = f"{LAYOUT.artifact('build', KEY)}/"
FILES = ("a", "b")
MOST_OPERATIONS = 60
ORDERS = 30
STATES = ("stored", "claimed", "files", "half-removed", "absent")


class World:
    """A store with an artifact that no release needs, in one of its possible states."""

    of_all = ""

    def __init__(self, state):
        self.clock = ManualClock()
        self.store = MemoryObjectStore(self.clock.now)
        self.folder = Path(tempfile.mkdtemp(dir=self.of_all))
        self.source = self.folder / "made"
        self.source.mkdir()
        for name in FILES:
            (self.source / name).write_bytes(name.encode() * 9)
        manifest = f"{PREFIX}manifest.json"
        if state != "absent":
            self.make(self.store, self.clock)
        if state in {"claimed", "files", "half-removed"}:
            self.store.delete([manifest, f"{PREFIX}a"])
        if state == "claimed":
            Heads(self.store, self.clock).claim(manifest, patience_s=0)
        if state == "half-removed":
            Heads(self.store, self.clock).mark(manifest, None)
        self.clock.seconds += 2 * TAKEOVER_S

    def make(self, store, clock):
        artifacts = ArtifactStore(store, LAYOUT, clock)
        artifacts.store("build", KEY, self.source, inputs={}, producer={}, metrics={}, seconds=1.0)

    def release(self, store, clock):
        """A run of a release: as plan does it, then the stage if it is missing, then what reads the artifact."""
        artifacts, heads = ArtifactStore(store, LAYOUT, clock), Heads(store, clock)
        heads.replace(RELEASE, canonical_json(PLANNED.model_dump(mode="json")), patience_s=2 * TAKEOVER_S)
        stored = artifacts.use("build", KEY)
        if stored is None and artifacts.use("build", KEY) is None:
            self.make(store, clock)
        artifacts.fetch("build", KEY, Path(tempfile.mkdtemp(dir=self.folder)))

    def retention(self, store, clock):
        scratch = Path(tempfile.mkdtemp(dir=self.folder))
        workspace = dataclasses.replace(in_memory(scratch, store=store), clock=clock)
        ledger = Ledger(store, LAYOUT.retention(scratch.name), dry_run=False)
        Sweep(workspace, ANY_AGE, RetentionRequest(run=scratch.name), ledger, clock.now() + FAR).run()

    def check(self):
        """Whoever ended how: an artifact that exists is whole."""
        head = self.store.read_with_etag(f"{PREFIX}manifest.json")
        if head is None or not exists(head[0], PREFIX):
            return
        named = {file["path"] for file in json.loads(head[0])["files"]}
        assert named <= {item.uri.removeprefix(PREFIX) for item in self.store.list(PREFIX)}

    def check_released(self):
        ArtifactStore(self.store, LAYOUT, self.clock).fetch("build", KEY, self.folder / "end")
        assert self.store.exists(RELEASE)
        assert exists(self.store.read_bytes(RELEASE), RELEASE)


@pytest.fixture(scope="module", autouse=True)
def folder_of_all_worlds():
    with tempfile.TemporaryDirectory(prefix="slipway-races-") as World.of_all:
        yield


def played(world, works, order, dies_after=None):
    actors = [Actor(work) for work in works]
    actors[0].dies_after = dies_after
    play(actors, order, world.store, world.clock)
    return actors


def switches(first, second):
    """Some orders in which one actor begins, the other does some operations, and the first one goes on.

    Others each time: all of them take a minute.
    """
    pairs = [*itertools.product(range(first), range(1, second))]
    for begun, between in dice().sample(pairs, ORDERS):
        yield [0] * begun + [1] * between + [0] * first


def operations(state, work):
    world = World(state)
    return played(world, [getattr(world, work)], [])[0].operations + 1


@pytest.mark.parametrize("state", ["stored", "files", "half-removed"])
@pytest.mark.parametrize("begins", ["release", "retention"])
def test_a_release_has_its_artifact_in_every_order_of_two_switches(state, begins):
    other = "retention" if begins == "release" else "release"
    longest = operations(state, begins), operations(state, other) + 6

    for order in switches(*longest):
        world = World(state)
        actors = played(world, [getattr(world, begins), getattr(world, other)], order)

        assert [actor.error for actor in actors] == [None, None], order
        world.check_released()


@given(
    state=st.sampled_from(STATES),
    order=st.lists(st.integers(0, 3), max_size=3 * MOST_OPERATIONS),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_two_runs_of_retention_and_two_of_releases_agree(state, order):
    world = World(state)

    actors = played(world, [world.release, world.retention, world.retention, world.release], order)

    assert [actor.error for actor in actors] == [None] * 4
    world.check_released()


@pytest.mark.parametrize("state", STATES)
def test_retention_may_be_killed_at_every_operation(state):
    for dies_after in range(operations(state, "retention")):
        world = World(state)
        killed, released = played(world, [world.retention, world.release], [], dies_after)

        assert isinstance(killed.error, CrashedError | None), killed.error
        assert released.error is None
        world.check_released()


@pytest.mark.parametrize("state", STATES)
def test_what_a_killed_run_left_is_deleted_by_the_next_one(state):
    for dies_after in range(operations(state, "retention")):
        world = World(state)
        played(world, [world.retention], [], dies_after)
        world.check()
        world.clock.seconds += TAKEOVER_S
        world.retention(world.store, world.clock)

        assert list(world.store.list(PREFIX)) == []


@pytest.mark.parametrize("state", STATES)
def test_a_release_that_is_killed_leaves_an_artifact_whole_or_not_at_all(state):
    for dies_after in range(operations(state, "release")):
        world = World(state)
        played(world, [world.release, world.retention], [0, 0, 0, 1, 1] * 12, dies_after)

        world.check()


def test_a_removal_that_takes_long_renews_its_mark_and_stops_when_it_has_lost_it():
    world = World("stored")
    for number in range(2500):
        world.store.put_bytes(f"{PREFIX}part-{number:04}", b"")
    delete = world.store.delete
    batches = []

    def slow_delete(uris):
        if not uris[0].startswith(PREFIX):
            return delete(uris)
        batches.append(len(uris))
        world.clock.seconds += 400
        if len(batches) == 2:  # a writer took over
            world.clock.seconds += TAKEOVER_S
            Heads(world.store, world.clock).claim(f"{PREFIX}manifest.json", patience_s=0)
        return delete(uris)

    world.store.delete = slow_delete
    world.retention(world.store, world.clock)

    assert batches == [1000, 1000]
    assert world.store.exists(f"{PREFIX}manifest.json")
