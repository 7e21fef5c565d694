"""download: store the planned files of the model and its adapters in the object store, with verified digests."""

from tasks.adapters.progress import size
from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.plan import adapter_folder
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
    for name, adapter in release.plan.adapters.items():
        folder = checkpoint / adapter_folder(name)
        folder.mkdir(parents=True)
        workspace.hub.download(adapter, folder)
    seconds = workspace.clock.monotonic() - started
    manifest = workspace.artifacts.store(
        "download",
        planned.key,
        checkpoint,
        inputs={},
        producer={
            "repo": source.repo,
            "commit": source.commit,
            **{f"lora {name}": f"{each.repo}@{each.commit}" for name, each in release.plan.adapters.items()},
        },
        metrics={},
        seconds=seconds,
    )
    rate = f" at {size(int(manifest.size_bytes / seconds))}/s" if seconds > 0 else ""
    return Outcome(
        f"{source.repo}@{source.commit[:12]}: {len(manifest.files)} files, {size(manifest.size_bytes)}{rate}",
        {"key": manifest.key, "size_bytes": manifest.size_bytes, "files": len(manifest.files)},
    )
