"""sign-adapters: sign what fetch-adapters stored, for the release that serves it, at a site that signs."""

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.signing import KEY_VARIABLE
from slipway.tasks.contracts.stored.adapters import AdaptersRequest
from slipway.tasks.contracts.stored.artifact import ADAPTER
from slipway.tasks.contracts.stored.release import PREVIOUS


def run(request: AdaptersRequest, workspace: Workspace) -> Outcome:
    """Write the signature of each adapter that has none of an accepted key.

    Raises:
        InputError: this process has no key, serving pods would refuse it, or an adapter is missing.
    """
    if request.to == PREVIOUS:
        return Outcome("the adapters before are signed", {}, stored=True)
    signatures, signer = workspace.signatures, workspace.signer
    if signatures is None or signer is None:
        raise InputError(
            f"site {workspace.site.name} accepts signatures, and this process has no key to sign with",
            found=f"neither signing.kms_key nor {KEY_VARIABLE}",
            remedy="Name signing.key_secret or signing.kms_key in the site file.",
        )
    release_id, entries = workspace.documents.fetched_adapters(request.model, request.run)
    for entry in entries:
        manifest = workspace.artifacts.find(ADAPTER, entry.key)
        if manifest is None:
            raise InputError(f"adapter {entry.words} is not stored", remedy="Run `slipway adapters` again.")
        if not signatures.is_signed(release_id, manifest):
            signatures.sign(release_id, manifest, None, signer)
    return Outcome(f"{len(entries)} adapters are signed for {release_id}", {"release_id": release_id})
