"""download: store the planned files of model, adapters and draft model in the object store, with verified digests."""

from tasks.adapters.progress import size
from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.plan import DRAFT_FOLDER, Plan, Source, adapter_folder
from tasks.contracts.release import Release


def run(release: Release, workspace: Workspace) -> Outcome:
    """Download into scratch, verify every file, store them as the download artifact.

    Raises:
        InputError: scratch is too small, or the Hub denies access.
        DigestMismatchError: a file differs from the one that was announced when the release was planned.
    """
    source, planned = release.plan.source, release.plan.stages["download"]
    workspace.require_space(release.plan.download_bytes, f"download of {source.repo}@{source.revision}")
    checkpoint = workspace.folder("checkpoint")
    started = workspace.clock.monotonic()
    workspace.hub.download(source, checkpoint)
    for path, other in _beside(release.plan).items():
        folder = checkpoint / path
        folder.mkdir(parents=True)
        workspace.hub.download(other, folder)
    seconds = workspace.clock.monotonic() - started
    manifest = workspace.artifacts.store(
        "download",
        planned.key,
        checkpoint,
        inputs={},
        producer={
            "repo": source.repo,
            "commit": source.commit,
            **{path.replace("/", " "): f"{each.repo}@{each.commit}" for path, each in _beside(release.plan).items()},
        },
        metrics={},
        seconds=seconds,
    )
    rate = f" at {size(int(manifest.size_bytes / seconds))}/s" if seconds > 0 else ""
    return Outcome(
        f"{source.repo}@{source.commit[:12]}: {len(manifest.files)} files, {size(manifest.size_bytes)}{rate}",
        {"key": manifest.key, "size_bytes": manifest.size_bytes, "files": len(manifest.files)},
    )


def _beside(plan: Plan) -> dict[str, Source]:
    """Repositories that lie beside the model, by their folders in the artifact."""
    folders = {adapter_folder(name): adapter for name, adapter in plan.adapters.items()}
    return folders | ({DRAFT_FOLDER: plan.draft} if plan.draft else {})
