"""Reads what earlier releases of a model left in the object store. Plan estimates with it, and needs none of it."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from slipway.tasks.adapters.store.artifacts import DOWNLOADED_BYTES, ArtifactStore
from slipway.tasks.adapters.store.release_documents import ReleaseDocuments
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.forecast import PastTimes
from slipway.tasks.contracts.fit.step_kinds import STEP_KINDS, steps_of
from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.step_names import Step
from slipway.tasks.contracts.stored.artifact import STAGES, Manifest, Stage
from slipway.tasks.contracts.stored.bytes_to_move import Repository, StoredFiles
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.plan import Plan
from slipway.tasks.contracts.stored.release import Release

RELEASES_READ = 5
READS_AT_ONCE = 8


@dataclass(frozen=True)
class Past:
    """Earlier releases with their artifacts. What is gone or cannot be read is left out of every answer."""

    documents: ReleaseDocuments
    artifacts: ArtifactStore

    def releases(self, channel: Channel) -> tuple[Release, ...]:
        """The newest releases that the channel names: the live one, previous ones, then those promoted or refused."""
        entries = [*([channel.live] if channel.live else []), *channel.previous]
        uris = {entry.release_id: entry.release_uri for entry in entries}
        for event in channel.history:
            uris.setdefault(event.release_id, self.documents.layout.release(channel.name, event.release_id))
        with ThreadPoolExecutor(RELEASES_READ) as pool:
            read = pool.map(lambda uri: list(self._release(uri)), list(uris.values())[:RELEASES_READ])
            return tuple(release for releases in read for release in releases)

    def stored_files(self, plan: Plan, releases: Sequence[Release]) -> StoredFiles:
        """Files that the plan's download need not bring: none where it is stored itself.

        Those of every other download are known where the store has few. Otherwise only those of the releases are.
        """
        if "download" not in plan.missing:
            return StoredFiles()
        own, downloads = plan.stages["download"].key, self.artifacts.files_of("download")
        kept = downloads.lying_in(own)
        files = downloads.from_one_listing(own)
        if files is not None:
            return StoredFiles(files, kept)
        keys = {release.plan.stages["download"].key for release in releases} - {own}
        with ThreadPoolExecutor(RELEASES_READ) as pool:
            manifests = list(pool.map(lambda key: self._manifest("download", key), sorted(keys)))
        of_releases = tuple(file for manifest in manifests if manifest for file in manifest.files)
        return StoredFiles(of_releases, kept, complete=False)

    def repository(self, plan: Plan, spec: ReleaseSpec, releases: Sequence[Release]) -> Repository | None:
        """What each pod of the plan's release fetches.

        That is exact where the repository is stored, and nearly so where the engine is: little is rendered beside it.
        Otherwise it is in proportion to the repository of an earlier release with the same engine kind and format.
        """
        stages: tuple[Stage, ...] = ("publish", "build")
        for stage in stages:
            if stage not in plan.missing and (manifest := self._manifest(stage, plan.stages[stage].key)):
                return Repository(size_bytes=manifest.size_bytes)
        made_alike = spec.engine.kind, spec.quantization.format
        for release in releases:
            past_bytes = release.plan.download_bytes
            if (release.spec.engine.kind, release.spec.quantization.format) != made_alike or not past_bytes:
                continue
            if manifest := self._manifest("publish", release.plan.stages["publish"].key):
                share = plan.download_bytes / past_bytes
                return Repository(size_bytes=round(manifest.size_bytes * share), of=release.id)
        return None

    def times(self, release: Release) -> PastTimes:
        """The time of each of the release's steps that left one.

        A stage's is in the artifact's manifest: a later run finds the artifact stored and takes no time for it. A step
        that failed when it last ran has none.
        """
        steps = [step for step in steps_of(release.spec) if STEP_KINDS[step].timed]
        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            durations = pool.map(lambda step: list(self._taken(step, release)), steps)
            taken = {step: each[0] for step, each in zip(steps, durations, strict=True) if each}
        return PastTimes(
            release.id,
            release.plan.download_bytes,
            {step: seconds for step, (seconds, _) in taken.items()},
            downloaded_bytes=taken["download"][1] if "download" in taken else None,
        )

    def gate(self, release: Release) -> GateReport | None:
        """The report of the release's own gate."""
        try:
            report = self.documents.result(release, "gate").data["report"]
            return read_contract(GateReport, report, "the gate's report")
        except (InputError, KeyError):
            return None

    def _release(self, uri: str) -> Iterator[Release]:
        try:
            yield self.documents.release(uri)
        except InputError:
            return

    def _manifest(self, stage: Stage, key: str) -> Manifest | None:
        try:
            return self.artifacts.find(stage, key)
        except InputError:
            return None

    def _taken(self, step: Step, release: Release) -> Iterator[tuple[float, int | None]]:
        """Seconds of a step, and the bytes that it downloaded where that is known."""
        try:
            if step in STAGES:
                if manifest := self.artifacts.find(step, release.plan.stages[step].key):
                    yield manifest.seconds, manifest.metrics.get(DOWNLOADED_BYTES)
            elif (result := self.documents.result(release, step)).outcome != "failed":
                yield result.seconds, None
        except InputError:
            return
