"""Retention between and within the moves of a model's releases: what one of them still needs is never deleted."""

import contextlib
import dataclasses
from pathlib import Path
from tempfile import mkdtemp

import pytest

from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.retention import RetentionPolicy, RetentionRequest
from slipway.tasks.retention.ledger import Ledger
from slipway.tasks.retention.sweep import Sweep
from slipway.tasks.rollout.act.revert import revert
from slipway.tasks.steps import promote, roll_back, roll_out
from tests.fakes.clock import ManualClock
from tests.fakes.documents.rollouts import channel, judged, published, version
from tests.fakes.kube.cluster import MemoryCluster, in_memory
from tests.fakes.store.object_store import MemoryObjectStore
from tests.support.seeds import dice

pytestmark = pytest.mark.timeout(100)
POLICY = RetentionPolicy(releases_per_model=1, days=0, evidence_days=0, grace_h=1)
"""As little as a site can keep."""
HOUR_S = 3600
LIVE_BEFORE = 2
"""Releases that went live one after the other, before anything else happens."""
SHARED = "d" * 64
"""Key of the download that all releases have in common."""


class Interrupting:
    """A store or a cluster whose operations are counted; another process acts before one of them."""

    def __init__(self, inner, moment):
        self._inner, self._moment = inner, moment

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if callable(found):
            self._moment.passes()
        return found


@dataclasses.dataclass
class Moment:
    """Calls `act` once, before so many more operations."""

    left: int
    act: object

    def passes(self):
        self.left -= 1
        if self.left == 0:
            self.act()


class World:
    """A model's releases: at most one is on its way, as its DAG allows."""

    def __init__(self, folder):
        self.clock = ManualClock()
        self.store = MemoryObjectStore(self.clock.now)
        self.folder = folder
        made = in_memory(folder, store=self.store, cluster=MemoryCluster(self.clock))
        self.workspace = dataclasses.replace(made, clock=self.clock)
        self.made, self.running, self.is_deployed, self.runs = [], None, False, 0
        while len(self.made) < LIVE_BEFORE or self.running is not None:
            self.release()

    def release(self):
        """The next move of the release that is on its way, or else a new one; each takes a minute."""
        self.clock.seconds += 60
        if self.running is None:
            self._plan()
        elif not self.is_deployed:
            roll_out.run(self.running, self.workspace)
            self.is_deployed = True
        else:
            judged(self.workspace, self.running)
            promote.run(self.running, self.workspace)
            self.running = None

    def refuse(self):
        if self.running is not None and self.is_deployed:
            roll_back.run(self.running, self.workspace)
            self.running = None

    def go_back(self):
        self.runs += 1
        if not self.is_deployed or self.running is None:
            with contextlib.suppress(InputError):  # nothing to go back to
                revert("demo", self.workspace, run=f"back-{self.runs}", reason="slow")

    def cool(self):
        """The previous releases lose their pods, as where no two fit beside each other."""
        if found := channel(self.workspace):
            for entry in found.previous:
                self.workspace.connection.delete("Deployment", entry.release_id)

    def wait(self):
        self.clock.seconds += 200 * HOUR_S

    def retain(self, moment=0, act=None):
        """A run of retention, during which `act` happens."""
        self.runs += 1
        passing = Moment(moment, act)
        inside = dataclasses.replace(
            self.workspace,
            store=Interrupting(self.store, passing),
            connection=Interrupting(self.workspace.connection, passing),
            scratch=Path(mkdtemp(dir=self.folder)),
        )
        run = f"gc-{self.runs}"
        ledger = Ledger(inside.store, self.workspace.layout.retention(run), dry_run=False)
        Sweep(inside, POLICY, RetentionRequest(run=run), ledger, self.clock.now()).run()

    def _plan(self):
        number, self.is_deployed = len(self.made) + 1, False
        made = version(number)
        keys = {
            stage: planned.model_copy(update={"key": SHARED if stage == "download" else f"{number:08x}{index:08x}" * 4})
            for index, (stage, planned) in enumerate(made.plan.stages.items())
        }
        self.running = made.model_copy(update={"plan": made.plan.model_copy(update={"stages": keys})})
        self.made.append(self.running)
        published(self.workspace, self.running)
        for stage in ("download", "publish"):
            self._stage(stage, keys[stage].key)

    def _stage(self, stage, key):
        if self.workspace.artifacts.use(stage, key) is None:
            source = Path(mkdtemp(dir=self.folder))
            (source / "weights").write_bytes(key.encode())
            ArtifactStore(self.store, self.workspace.layout, self.clock).store(
                stage, key, source, inputs={}, producer={}, metrics={}, seconds=1.0
            )

    def missing(self):
        """What a release that is live, kept as previous or on its way lacks."""
        found = channel(self.workspace)
        names = {entry.release_id for entry in (found.live, *found.previous) if entry} if found else set()
        needed = [each for each in self.made if each.id in names or each is self.running]
        store = self.workspace.artifacts
        return [
            (each.id, stage)
            for each in needed
            for stage in ("download", "publish")
            if store.find(stage, each.plan.stages[stage].key) is None
        ] + [each.id for each in needed if not self.store.exists(self.workspace.layout.release("demo", each.id))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("worlds")


MOVES = ("release", "refuse", "go_back", "cool", "wait")
WORLDS = 25
MOST_BEFORE, MOST_OPERATIONS, AFTER = 8, 60, 3


def test_what_a_running_a_live_and_a_previous_release_need_is_never_deleted(folder):
    random = dice()
    for _ in range(WORLDS):
        world, act = World(Path(mkdtemp(dir=folder))), random.choice(MOVES)
        before = random.choices(MOVES, k=random.randint(0, MOST_BEFORE))
        moment, after = random.randint(1, MOST_OPERATIONS), random.choices(MOVES, k=AFTER)
        told = f"{before}, {act} before operation {moment}, {after}"
        for move in before:
            getattr(world, move)()

        world.retain(moment, getattr(world, act))

        assert world.missing() == [], told
        for move in after:
            getattr(world, move)()
        world.retain()
        assert world.missing() == [], told
