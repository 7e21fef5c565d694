"""fetch-repository: the init container of a serving pod. It downloads the release's Triton repository to a folder."""

from pathlib import Path

from tasks.adapters.progress import size
from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.release import Release


def run(release: Release, workspace: Workspace, target: Path) -> Outcome:
    """Download every file to `target`, verified. Files that are correct there already are kept across a restart.

    Raises:
        InputError: the repository was not published.
        DigestMismatchError: a stored file is damaged; it is not left in `target`.
    """
    target.mkdir(parents=True, exist_ok=True)
    key = release.plan.stages["publish"].key
    manifest = workspace.artifacts.fetch("publish", key, target)
    return Outcome(
        f"fetch-repository: {release.id} is at {target}: {len(manifest.files)} files, "
        f"{size(manifest.size_bytes)}, verified",
        {"key": key, "size_bytes": manifest.size_bytes},
    )
