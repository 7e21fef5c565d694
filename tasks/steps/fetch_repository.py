"""fetch-repository: a serving pod's init container. Brings the release's Triton repository to a local folder."""

from pathlib import Path

from tasks.adapters.progress import size
from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.release import Release


def run(release: Release, workspace: Workspace, target: Path) -> Outcome:
    """Bring every file under `target`, verified; what is right there already is kept, so a restart costs no download.

    Raises:
        InputError: the repository was not published.
        DigestMismatchError: a stored file is damaged; no such file is left under `target`.
    """
    target.mkdir(parents=True, exist_ok=True)
    key = release.plan.stages["publish"].key
    manifest = workspace.artifacts.fetch("publish", key, target)
    return Outcome(
        f"fetch-repository: {release.id} is at {target}: {len(manifest.files)} files, "
        f"{size(manifest.size_bytes)}, verified",
        {"key": key, "size_bytes": manifest.size_bytes},
    )
