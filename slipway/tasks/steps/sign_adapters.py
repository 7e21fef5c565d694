"""sign-adapters: sign what the live release is to serve, stored before, at a site that signs."""

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.signing import KEY_VARIABLE
from slipway.tasks.contracts.stored.adapters import AdapterEntry, AdaptersRequest
from slipway.tasks.contracts.stored.artifact import ADAPTER, Manifest
from slipway.tasks.contracts.stored.release import PREVIOUS


def run(request: AdaptersRequest, workspace: Workspace) -> Outcome:
    """Write the signature of each adapter that has none of an accepted key.

    Raises:
        InputError: this process has no key, serving pods would refuse it, or an adapter is missing.
    """
    release_id, entries = _wanted(request, workspace)
    for entry in entries:
        manifest = workspace.artifacts.find(ADAPTER, entry.key)
        if manifest is None:
            raise InputError(f"adapter {entry.words} is not stored", remedy="Run `slipway adapters` again.")
        _sign(release_id, manifest, workspace)
    return Outcome(f"{len(entries)} adapters are signed for {release_id}", {"release_id": release_id})


def _sign(release_id: str, manifest: Manifest, workspace: Workspace) -> None:
    """Sign an adapter, unless an accepted key did; a site that only verifies has those that were imported with it."""
    signatures, signer = workspace.signatures, workspace.signer
    if signatures is not None and signatures.is_signed(release_id, manifest):
        return
    if signatures is None or signer is None:
        raise InputError(
            f"site {workspace.site.name} accepts signatures, and this process has no key to sign with",
            found=f"neither signing.kms_key nor {KEY_VARIABLE}",
            remedy="Name signing.key_secret or signing.kms_key in the site file.",
        )
    signatures.sign(release_id, manifest, None, signer)


def _wanted(request: AdaptersRequest, workspace: Workspace) -> tuple[str, tuple[AdapterEntry, ...]]:
    """The release, and its adapters; those before may have been signed by a key that is no longer accepted.

    Raises:
        InputError: nothing is live.
    """
    if request.to != PREVIOUS:
        fetched = workspace.documents.fetched_adapters(request.model, request.run)
        return fetched.release, fetched.adapters
    live = workspace.documents.channel(request.model).live
    if live is None:
        raise InputError(f"nothing of {request.model} is live", remedy=f"Run `slipway release {request.model}` first.")
    document = workspace.documents.adapters(request.model, live.release_id)
    return live.release_id, document.before(request.run) or ()
