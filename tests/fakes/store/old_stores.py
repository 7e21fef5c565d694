"""An object store with things of any age in it, and a workspace over it, for tests of retention."""

import dataclasses
from datetime import UTC, datetime, timedelta

from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.site.retention import RetentionPolicy, RetentionRequest
from slipway.tasks.contracts.stored.adapters import Adapters
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.steps import retention
from tests.fakes.documents.rollouts import version
from tests.fakes.kube.cluster import in_memory
from tests.fakes.store.object_store import MemoryObjectStore

NOW = datetime(2026, 6, 1, tzinfo=UTC)
POLICY = {"releases_per_model": 1, "days": 30, "evidence_days": 90, "grace_h": 48}


class OldStore:
    """Puts releases and artifacts of a given age into a store. Ages are in days."""

    def __init__(self, folder, **policy):
        self.time = NOW
        self.store = MemoryObjectStore(lambda: self.time)
        self.folder = folder
        (folder / "scratch").mkdir()
        self.workspace = in_memory(folder / "scratch", store=self.store)
        self.workspace.clock.began = NOW
        self.policy = RetentionPolicy(**{**POLICY, **policy})
        object.__setattr__(self.workspace, "site", self.workspace.site.model_copy(update={"retention": self.policy}))
        self.layout = self.workspace.layout
        self._made = 0

    def artifact(self, stage, key, *, days, files=("weights",)):
        """An artifact that was made that long ago."""
        self._made += 1
        source = self.folder / f"made-{self._made}"
        source.mkdir()
        for name in files:
            (source / name).write_bytes(f"{key}{name}".encode())
        with_age = self.at(days)
        with with_age:
            self.workspace.artifacts.store(stage, key, source, inputs={}, producer={}, metrics={}, seconds=1.0)
        return f"{self.layout.artifact(stage, key)}/"

    def release(self, number, *, days, name="demo", stages=("download", "publish")):
        """A release that was planned that long ago, with an artifact of its own for some of its stages."""
        made = version(number, name=name)
        planned = made.plan.stages
        keys = {
            stage: planned[stage].model_copy(update={"key": f"{number:08x}{index:08x}" * 4})
            for index, stage in enumerate(planned)
        }
        made = made.model_copy(update={"plan": made.plan.model_copy(update={"stages": keys})})
        with self.at(days):
            self.store.put_bytes(self.layout.release(name, made.id), canonical_json(made.model_dump(mode="json")))
            self.store.put_bytes(self.layout.result(name, made.id, "gate"), b"{}")
            self.store.put_bytes(f"{self.layout.evidence(name, made.id, made.plan.run)}/gate.json", b"{}")
        for stage in stages:
            self.artifact(stage, keys[stage].key, days=days)
        return made

    def channel(self, live, *previous, name="demo"):
        """A channel that names these releases."""
        document = Channel(name=name)
        for made in reversed((live, *previous)):
            uri = self.layout.release(name, made.id)
            document = document.promoted(made.id, uri, at=NOW, run=made.plan.run, keep=10)
        self.store.put_bytes(self.layout.channel(name), canonical_json(document.model_dump(mode="json")))

    def adapters(self, made, *sets):
        """What adapters the release serves, and served before, by the keys of their artifacts."""
        entries = [
            [
                {"name": f"a{key[0]}", "repo": "org/a", "revision": "main", "commit": "c", "key": key, "rank": 8}
                for key in keys
            ]
            for keys in sets
        ]
        document = Adapters(
            release_id=made.id,
            sets=[{"adapters": each, "event": "loaded", "run": "run", "at": NOW} for each in entries],
        )
        uri = self.layout.adapters(made.spec.name, made.id)
        with self.at(60):
            self.store.put_bytes(uri, canonical_json(document.model_dump(mode="json")))

    def at(self, days):
        """Whatever is written within the block is that old."""
        outer = self

        class Then:
            def __enter__(self):
                outer.time = NOW - timedelta(days=days)

            def __exit__(self, *_):
                outer.time = NOW

        return Then()

    def run(self, *, dry_run=False, run="gc-1", store=None):
        """One run of retention, by another way to the store if one is given."""
        workspace = dataclasses.replace(self.workspace, store=store or self.store)
        return retention.run(RetentionRequest(run=run, dry_run=dry_run), workspace)

    def left(self, below=""):
        """URIs without the root and without retention's own reports."""
        root = f"{self.layout.root}/"
        found = (uri.removeprefix(root) for uri in self.store.objects)
        return {uri for uri in found if uri.startswith(below) and not uri.startswith("retention/")}

    def has(self, made, stage="publish"):
        """Whether the release's artifact exists."""
        return self.workspace.artifacts.find(stage, made.plan.stages[stage].key) is not None
