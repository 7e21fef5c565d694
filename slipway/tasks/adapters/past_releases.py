"""Earlier releases of a model, and the files that they left in the object store."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.base import read_contract_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import Manifest, Stage
from slipway.tasks.contracts.stored.bytes_to_move import Repository, StoredFiles
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.plan import Plan
from slipway.tasks.contracts.stored.release import Release

RELEASES_READ = 5


def past_releases(channel: Channel | None, workspace: Workspace) -> tuple[Release, ...]:
    """The newest releases that the channel names: the live one, previous ones, then those promoted or refused before.

    One whose document is gone or cannot be read is left out: all of this only helps to estimate.
    """
    if channel is None:
        return ()
    entries = [*([channel.live] if channel.live else []), *channel.previous]
    uris = {entry.release_id: entry.release_uri for entry in entries}
    for event in channel.history:
        uris.setdefault(event.release_id, workspace.layout.release(channel.name, event.release_id))
    with ThreadPoolExecutor(RELEASES_READ) as pool:
        read = pool.map(lambda uri: list(_read(uri, workspace)), list(uris.values())[:RELEASES_READ])
        return tuple(release for releases in read for release in releases)


def stored_files(plan: Plan, releases: Sequence[Release], workspace: Workspace) -> StoredFiles:
    """Files that the plan's download need not bring: none where it is stored itself.

    Those of every other download are known where the store has few. Otherwise only those of the releases are.
    """
    if "download" not in plan.missing:
        return StoredFiles()
    own, downloads = plan.stages["download"].key, workspace.artifacts.files_of("download")
    kept = downloads.lying_in(own)
    files = downloads.from_one_listing(own)
    if files is not None:
        return StoredFiles(files, kept)
    keys = {release.plan.stages["download"].key for release in releases} - {own}
    with ThreadPoolExecutor(RELEASES_READ) as pool:
        manifests = list(pool.map(lambda key: _manifest("download", key, workspace), sorted(keys)))
    of_releases = tuple(file for manifest in manifests if manifest for file in manifest.files)
    return StoredFiles(of_releases, kept, complete=False)


def repository_of(
    plan: Plan, spec: ReleaseSpec, releases: Sequence[Release], workspace: Workspace
) -> Repository | None:
    """What each pod of the plan's release fetches.

    That is exact where the repository is stored, and nearly so where the engine is: little is rendered beside it.
    Otherwise it is in proportion to the repository of an earlier release with the same engine kind and format.
    """
    stages: tuple[Stage, ...] = ("publish", "build")
    for stage in stages:
        if stage not in plan.missing and (manifest := _manifest(stage, plan.stages[stage].key, workspace)):
            return Repository(size_bytes=manifest.size_bytes)
    made_alike = spec.engine.kind, spec.quantization.format
    for release in releases:
        if (
            release.spec.engine.kind,
            release.spec.quantization.format,
        ) != made_alike or not release.plan.download_bytes:
            continue
        if manifest := _manifest("publish", release.plan.stages["publish"].key, workspace):
            share = plan.download_bytes / release.plan.download_bytes
            return Repository(size_bytes=round(manifest.size_bytes * share), of=release.id)
    return None


def _read(uri: str, workspace: Workspace) -> Iterator[Release]:
    try:
        yield read_contract_json(Release, workspace.store.read_bytes(uri), uri)
    except InputError:
        return


def _manifest(stage: Stage, key: str, workspace: Workspace) -> Manifest | None:
    try:
        return workspace.artifacts.find(stage, key)
    except InputError:
        return None
