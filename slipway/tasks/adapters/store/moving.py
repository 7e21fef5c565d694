"""Copies models from one object store to another: their channels, the releases these name, and their artifacts.

Every byte of an artifact is verified against its manifest on the way. What is complete at the target is not copied
again, so a copy that was cut short continues. The channel is written last: until then nothing at the target is live.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Literal

from slipway.tasks.adapters.clock import Clock
from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.adapters.store.heads import Heads, exists
from slipway.tasks.adapters.store.object_store import ObjectStore
from slipway.tasks.adapters.store.release_documents import ReleaseDocuments
from slipway.tasks.contracts.base import canonical_json, check_address, read_contract_json
from slipway.tasks.contracts.errors import ConflictError, InputError
from slipway.tasks.contracts.stored.artifact import ADAPTER, STAGES, Layout, Manifest, Stage
from slipway.tasks.contracts.stored.attestation import ATTESTATIONS
from slipway.tasks.contracts.stored.channel import Channel, ChannelEntry
from slipway.tasks.contracts.stored.release import Release

PATIENCE_S = 120.0
ONLY_SERVED: tuple[Stage, ...] = ("publish",)
SERVED: tuple[Stage, ...] = ("publish", ADAPTER)
Replaced = Literal["none", "earlier", "any"]
"""Which channels of the target are replaced if they differ: none, an earlier state of the source's, or any."""


@dataclass(frozen=True)
class Place:
    """An object store and where Slipway's objects lie in it."""

    store: ObjectStore
    layout: Layout

    def names(self) -> tuple[str, ...]:
        """Models that have a channel."""
        return tuple(sorted(PurePosixPath(item.uri).stem for item in self.store.list(self.layout.channels())))

    def channel(self, name: str) -> tuple[Channel, str] | None:
        """A model's channel and its ETag; None when it has none."""
        uri = self.layout.channel(name)
        stored = self.store.read_with_etag(uri)
        if stored is None:
            return None
        channel = read_contract_json(Channel, stored[0], uri)
        check_address(uri, self.layout.channel(channel.name))
        return channel, stored[1]

    def release(self, name: str, release_id: str, named: str = "") -> tuple[Release, bytes]:
        """A release and its document: its release.json, or the one `named` that a channel leads to."""
        uri = self.layout.release(name, release_id, named)
        data = self.store.read_bytes(uri)
        release = read_contract_json(Release, data, uri)
        plan = release.plan
        own = ((release.spec.name, release.id), (plan.name, plan.release_id))
        check_address(uri, *(self.layout.release(*each, named) for each in own))
        return release, data


@dataclass(frozen=True)
class Move:
    """Copies from `source` to `target`."""

    source: Place
    target: Place
    clock: Clock
    replace: Replaced = "earlier"
    stages: tuple[Stage, ...] = STAGES

    def run(self, names: Sequence[str]) -> Iterator[str]:
        """Copy these models; yield a line about each release and channel that is complete at the target.

        Raises:
            InputError: a model has no channel, or a release or artifact is missing or cannot be read.
            ConflictError: the target's channel differs, and `replace` does not include it.
            DigestMismatchError: stored bytes differ from their manifest.
        """
        channels = {name: self._checked(name) for name in names}
        for name, (channel, moved, etag) in channels.items():
            for entry in (channel.live, *channel.previous):
                if entry is not None:
                    yield self._release(name, entry)
            if etag is None or self.target.channel(name) != (moved, etag):
                data = canonical_json(moved.model_dump(mode="json"))
                self.target.store.put_if(self.target.layout.channel(name), data, etag=etag)
            yield f"channel {name}: {_live(moved)} is live"

    def _checked(self, name: str) -> tuple[Channel, Channel, str | None]:
        """The channel, what it becomes, and the ETag of the one that it replaces. All are checked before any copy."""
        source_channel, target_channel = self.source.channel(name), self.target.channel(name)
        if source_channel is None:
            raise InputError(
                f"{name} has no channel at {self.source.layout.root}",
                found=", ".join(self.source.names()) or "no channels",
                remedy="Name models that were released there.",
            )
        moved = self._moved(source_channel[0])
        if target_channel is not None and not self._may_replace(target_channel[0], moved):
            earlier = ", or an earlier state of it" if self.replace == "earlier" else ""
            raise ConflictError(
                f"{self.target.layout.channel(name)} exists and differs; nothing was copied",
                found=f"{_live(target_channel[0])} is live there, at the source {_live(moved)}",
                expected=f"no channel, or the same one{earlier}",
                remedy="Give --replace to overwrite that channel. What serves does not change until "
                f"`slipway restore {name}`.",
            )
        return source_channel[0], moved, target_channel[1] if target_channel else None

    def _may_replace(self, there: Channel, moved: Channel) -> bool:
        return there == moved or self.replace == "any" or (self.replace == "earlier" and there.precedes(moved))

    def _moved(self, channel: Channel) -> Channel:
        """The channel with the addresses of the target."""

        def moved(entry: ChannelEntry) -> ChannelEntry:
            uri = self.target.layout.release(channel.name, entry.release_id, entry.release_uri)
            return entry.model_copy(update={"release_uri": uri})

        live = moved(channel.live) if channel.live else None
        return channel.model_copy(update={"live": live, "previous": tuple(map(moved, channel.previous))})

    def _release(self, name: str, entry: ChannelEntry) -> str:
        """Copy a release: first its document, so that retention at the target keeps what follows."""
        source, target = self.source, self.target
        uri, there = source.layout.release(name, entry.release_id), target.layout.release(name, entry.release_id)
        release, _ = source.release(name, entry.release_id, entry.release_uri)
        head, data = source.release(name, entry.release_id)
        if self._is_outdated(there, head, data):
            Heads(target.store, self.clock).replace(there, data, patience_s=PATIENCE_S)
        for dataset in release.plan.datasets.files:
            self._object(source.layout.dataset(dataset.file.digest), target.layout.dataset(dataset.file.digest))
        added = ReleaseDocuments(source.store, source.layout).adapters(name, entry.release_id)
        keys = [*((stage, release.plan.stages[stage].key) for stage in self.stages)]
        keys += [(ADAPTER, key) for key in sorted(added.needed)]
        outcomes = Counter(self._artifact(*each) for each in keys)
        published = release.plan.stages["publish"].key
        signed: list[tuple[Stage, str]] = [("publish", published), *((ADAPTER, key) for key in added.needed)]
        for each, attestation in product(signed, ATTESTATIONS):
            files = (place.layout.artifact(*each) for place in (source, target))
            self._object(*(f"{folder}/{attestation}" for folder in files))
        folder, to = uri.removesuffix("release.json"), there.removesuffix("release.json")
        for item in source.store.list(folder):
            if item.uri != uri:
                self._object(item.uri, f"{to}{item.uri.removeprefix(folder)}")
        amounts = ", ".join(f"{count} artifacts {outcome}" for outcome, count in sorted(outcomes.items()))
        return f"release {entry.release_id}: {amounts}"

    def _is_outdated(self, uri: str, release: Release, data: bytes) -> bool:
        """Whether the document at the target is missing or planned earlier, or differs and is to be replaced."""
        head = self.target.store.read_with_etag(uri)
        if head is None or not exists(head[0], uri):
            return True
        if head[0] == data or self.replace == "any":
            return head[0] != data
        return read_contract_json(Release, head[0], uri).created_at < release.created_at

    def _artifact(self, stage: Stage, key: str) -> str:
        """Copy an artifact unless the target has it; return what was done.

        Only what pods serve has to exist: other stages may have been deleted, and are made again when they are needed.
        """
        source = ArtifactStore(self.source.store, self.source.layout, self.clock)
        target = ArtifactStore(self.target.store, self.target.layout, self.clock)
        if self._is_whole(target.find(stage, key)) and target.use(stage, key):
            return "were there"
        if stage not in SERVED and source.find(stage, key) is None:
            return "missing at the source"
        with tempfile.TemporaryDirectory(prefix="slipway-move-") as folder:
            manifest = source.fetch(stage, key, Path(folder))
            target.store(
                stage,
                key,
                Path(folder),
                inputs=manifest.inputs,
                producer=manifest.producer,
                metrics=manifest.metrics,
                seconds=manifest.seconds,
            )
        return "copied"

    def _is_whole(self, manifest: Manifest | None) -> bool:
        """Whether the target has every file of the manifest with its size. Digests are verified when it is fetched."""
        if manifest is None:
            return False
        folder = f"{self.target.layout.artifact(manifest.stage, manifest.key)}/"
        sizes = {item.uri.removeprefix(folder): item.size_bytes for item in self.target.store.list(folder)}
        return all(sizes.get(file.path) == file.size_bytes for file in manifest.files)

    def _object(self, source_uri: str, target_uri: str) -> None:
        data = self.source.store.read_with_etag(source_uri)
        if data is None:
            return
        there = self.target.store.read_with_etag(target_uri)
        if there is None or there[0] != data[0]:
            content_type = "text/html; charset=utf-8" if target_uri.endswith(".html") else "application/json"
            self.target.store.put_bytes(target_uri, data[0], content_type=content_type)


def _live(channel: Channel) -> str:
    return channel.live.release_id if channel.live else "nothing"
