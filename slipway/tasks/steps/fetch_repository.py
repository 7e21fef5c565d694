"""fetch-repository: the init container of a serving pod. It downloads the release's Triton repository to a folder."""

from pathlib import Path

from slipway.tasks.adapters.progress import size
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import SignatureError
from slipway.tasks.contracts.stored.artifact import Layout, Manifest
from slipway.tasks.contracts.stored.plan import release_id
from slipway.tasks.contracts.stored.release import Release


def run(release: Release, release_uri: str, workspace: Workspace, target: Path) -> Outcome:
    """Download every file to `target`, verified. Files that are correct there already are kept across a restart.

    Where the site names public keys, the signature is verified before any file is downloaded. `release_uri` is that of
    the pod's manifest; it is trusted, and what the object store has at it is not.

    Raises:
        InputError: the repository was not published.
        SignatureError: no accepted key signed it for this release.
        DigestMismatchError: a stored file is damaged; it is not left in `target`.
    """
    target.mkdir(parents=True, exist_ok=True)
    key = release.plan.stages["publish"].key
    signing, verified = workspace.site.signing, "verified"
    signatures = workspace.signatures if signing and signing.verifies else None

    def check(manifest: Manifest) -> None:
        nonlocal verified
        if signatures is not None:
            _check_names(release, release_uri, workspace.layout)
            verified = f"verified, {signatures.verify(release.id, manifest)}"

    manifest = workspace.artifacts.fetch("publish", key, target, check=check)
    return Outcome(
        f"fetch-repository: {release.id} is at {target}: {len(manifest.files)} files, "
        f"{size(manifest.size_bytes)}, {verified}",
        {"key": key, "size_bytes": manifest.size_bytes},
    )


def _check_names(release: Release, release_uri: str, layout: Layout) -> None:
    """Check that release.json is the one of its address: it is not signed, and names the artifact to fetch."""
    name = release.spec.name
    at_this_address = layout.release(name, release.id, release_uri) == release_uri
    if not at_this_address or release_id(name, release.plan.stages["publish"].key) != release.id:
        raise SignatureError(
            f"{release_uri} is not the document of its release",
            found=f"release {release.id} with artifact publish {release.plan.stages['publish'].key[:12]}",
            remedy="Somebody changed it. Run the release again, and find out who can write to the object store.",
        )
