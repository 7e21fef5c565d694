"""Earlier releases of a model, and the files that they left in the object store."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tasks.adapters.workspace import Workspace
from tasks.contracts.artifact import File, Manifest, Stage
from tasks.contracts.base import read_contract_json
from tasks.contracts.bytes_to_move import Repository
from tasks.contracts.channel import Channel
from tasks.contracts.errors import InputError
from tasks.contracts.plan import Plan
from tasks.contracts.release import Release
from tasks.contracts.spec import ReleaseSpec

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


def past_downloads(plan: Plan, releases: Sequence[Release], workspace: Workspace) -> tuple[File, ...]:
    """Files of the releases' downloads; none where the plan's own download is stored."""
    if "download" not in plan.missing:
        return ()
    keys = {release.plan.stages["download"].key for release in releases} - {plan.stages["download"].key}
    with ThreadPoolExecutor(RELEASES_READ) as pool:
        manifests = list(pool.map(lambda key: _manifest("download", key, workspace), sorted(keys)))
    return tuple(file for manifest in manifests if manifest for file in manifest.files)


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
