"""download: bring the planned files of model, adapters and draft model from the Hub to the object store, verified."""

from functools import partial
from typing import TYPE_CHECKING

from slipway.tasks.adapters.progress import size
from slipway.tasks.adapters.store.artifacts import DOWNLOADED_BYTES, Incoming
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.stored.plan import DRAFT_FOLDER, Plan, Source, lora_folder
from slipway.tasks.contracts.stored.release import Release

if TYPE_CHECKING:  # the client is loaded when a step connects to the Hub
    from slipway.tasks.adapters.hub.hub import Hub

SHA256 = "sha256:"


def run(release: Release, workspace: Workspace) -> Outcome:
    """Stream the files from the Hub to the download artifact, verified on the way; none is written to scratch.

    Raises:
        InputError: the Hub denies access.
        DigestMismatchError: a file differs from the one that was announced when the release was planned.
    """
    source, planned = release.plan.source, release.plan.stages["download"]
    beside = _beside(release.plan)
    incoming = _incoming(source, "", workspace.hub)
    for folder, other in beside.items():
        incoming += _incoming(other, f"{folder}/", workspace.hub)
    manifest = workspace.artifacts.stream(
        "download",
        planned.key,
        incoming,
        what=f"download {source.name}",
        inputs={},
        producer={
            "repo": source.repo,
            "commit": source.commit,
            **{path.replace("/", " "): f"{each.repo}@{each.commit}" for path, each in beside.items()},
        },
        metrics={},
    )
    downloaded = manifest.metrics.get(DOWNLOADED_BYTES, manifest.size_bytes)
    part = f", {size(downloaded)} of it downloaded" if downloaded < manifest.size_bytes else ""
    rate = f" at {size(int(downloaded / manifest.seconds))}/s" if downloaded and manifest.seconds > 0 else ""
    return Outcome(
        f"{source.pinned}: {len(manifest.files)} files, {size(manifest.size_bytes)}{part}{rate}",
        {"key": manifest.key, "size_bytes": manifest.size_bytes, "files": len(manifest.files)},
    )


def _incoming(source: Source, prefix: str, hub: "Hub") -> list[Incoming]:
    return [
        Incoming(
            f"{prefix}{file.path}",
            file.size_bytes,
            file.digest.removeprefix(SHA256) if file.digest.startswith(SHA256) else None,
            partial(hub.bring, source, file),
        )
        for file in source.files
    ]


def _beside(plan: Plan) -> dict[str, Source]:
    """Repositories that lie beside the model, by their folders in the artifact."""
    folders = {lora_folder(name): adapter for name, adapter in plan.adapters.items()}
    return folders | ({DRAFT_FOLDER: plan.draft} if plan.draft else {})
