"""Reads the object store's lists as artifacts and releases, one at a time, so that memory does not grow with them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from slipway.tasks.adapters.store.object_store import ObjectStore, StoredObject
from slipway.tasks.contracts.site.retention import ReleaseFacts
from slipway.tasks.contracts.stored.artifact import ADAPTER, MANIFEST, STAGES, Layout, Stage

RELEASE = "release.json"
WITHOUT_FOLDER = frozenset({"plans", "reverts", "drills", "adapters"})
"""These folders of a model hold the results of runs that belong to no release."""


@dataclass
class Folder:
    """Objects with a common prefix: how many, how large, and when the newest was written."""

    uri: str
    """The prefix, with a slash at its end."""
    objects: int = 0
    size_bytes: int = 0
    newest: datetime | None = None
    head: StoredObject | None = None
    """manifest.json or release.json, if there is one."""

    def add(self, item: StoredObject, head: str) -> None:
        """Count an object; `head` is the name of the head."""
        self.objects += 1
        self.size_bytes += item.size_bytes
        self.newest = max(self.newest or item.modified_at, item.modified_at)
        if item.uri == f"{self.uri}{head}":
            self.head = item


@dataclass
class ReleaseFolder(Folder):
    """A release's documents, and its runs' evidence among them."""

    release_id: str = ""
    evidence: dict[str, Folder] = field(default_factory=dict)
    """By run."""

    @property
    def facts(self) -> ReleaseFacts:
        """What decides whether it is kept."""
        assert self.newest is not None
        planned_at = self.head.modified_at if self.head else self.newest
        return ReleaseFacts(self.release_id, planned_at, self.newest)


@dataclass
class Model:
    """A model's releases by id."""

    name: str
    releases: dict[str, ReleaseFolder] = field(default_factory=dict)


def artifacts(store: ObjectStore, layout: Layout) -> Iterator[tuple[Stage, str, Folder]]:
    """Every artifact, written, half-written or half-deleted: its stage, its key, its objects."""
    root = layout.artifacts()
    for stage in (*STAGES, ADAPTER):
        current: tuple[Stage, str, Folder] | None = None
        # a list is sorted, so the objects of an artifact follow each other
        for item in store.list(f"{root}{stage}/"):
            key, slash, _ = item.uri.removeprefix(f"{root}{stage}/").partition("/")
            if not slash:
                continue
            if current is None or current[1] != key:
                if current is not None:
                    yield current
                current = (stage, key, Folder(f"{layout.artifact(stage, key)}/"))
            current[2].add(item, MANIFEST)
        if current is not None:
            yield current


def models(store: ObjectStore, layout: Layout) -> Iterator[Model | StoredObject]:
    """Every model with its releases; results of runs without a release, which have no folder, as single objects."""
    root, current = layout.releases(), None
    for item in store.list(root):
        name, _, rest = item.uri.removeprefix(root).partition("/")
        release_id, slash, path = rest.partition("/")
        if not slash:
            continue
        if release_id in WITHOUT_FOLDER:
            yield item
            continue
        if current is None or current.name != name:
            if current is not None:
                yield current
            current = Model(name)
        _add(current, item, root, release_id, path)
    if current is not None:
        yield current


def _add(model: Model, item: StoredObject, root: str, release_id: str, path: str) -> None:
    uri = f"{root}{model.name}/{release_id}/"
    folder = model.releases.setdefault(release_id, ReleaseFolder(uri, release_id=release_id))
    folder.add(item, RELEASE)
    kind, _, rest = path.partition("/")
    run, slash, _ = rest.partition("/")
    if kind == "evidence" and slash:
        folder.evidence.setdefault(run, Folder(f"{uri}evidence/{run}/")).add(item, RELEASE)
