"""publish: make the complete Triton repository in the object store, with server-side copies, and sign it."""

from slipway.tasks.adapters.progress import size
from slipway.tasks.adapters.store.artifacts import ArtifactStore
from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.provenance import provenance
from slipway.tasks.contracts.site.signing import KEY_VARIABLE
from slipway.tasks.contracts.stored.artifact import Manifest, Stage
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.serving.rendered.paths import ENGINE_FOLDER, MODEL_VERSION


def run(release: Release, workspace: Workspace) -> Outcome:
    """Copy assemble's rendered files and build's engine under one prefix, laid out as in the boot test.

    Where the site signs, the signature and the provenance are written before the artifact exists.

    Raises:
        InputError: either artifact is missing, both have a file of the same name, or the site's keys do not fit.
        DigestMismatchError: a copy differs from its artifact's manifest.
    """
    signatures, signer = workspace.signatures, workspace.signer
    if signatures is not None and signer is None:
        raise InputError(
            f"site {workspace.site.name} accepts signatures, and this process has no key to sign with",
            found=f"neither signing.kms_key nor {KEY_VARIABLE}",
            remedy="Name signing.key_secret or signing.kms_key in the site file; a site whose releases are published "
            "elsewhere imports them instead (docs/disaster.md).",
        )
    rendered, engine = (
        _artifact(release, "assemble", workspace.artifacts),
        _artifact(release, "build", workspace.artifacts),
    )
    engine_folder = f"{release.spec.name}/{MODEL_VERSION}/{ENGINE_FOLDER}"

    def sign(manifest: Manifest) -> None:
        if signatures is not None and signer is not None:
            made_from = _made_from(release, rendered, engine, workspace.artifacts)
            statement = provenance(release, manifest, made_from, workspace.site, workspace.clock.now())
            signatures.sign(release.id, manifest, statement, signer)

    manifest = workspace.artifacts.compose(
        "publish",
        release.plan.stages["publish"].key,
        [(rendered, ""), (engine, engine_folder)],
        inputs={"assemble": rendered.key, "build": engine.key},
        producer={},
        metrics={},
        seal=sign,
    )
    uri = workspace.layout.artifact("publish", manifest.key)
    signed = "" if signatures is None else ", signed"
    return Outcome(
        f"{release.id}: {len(manifest.files)} files, {size(manifest.size_bytes)}{signed}",
        {"key": manifest.key, "uri": uri, "size_bytes": manifest.size_bytes},
    )


def _made_from(
    release: Release, rendered: Manifest, engine: Manifest, artifacts: ArtifactStore
) -> dict[Stage, Manifest]:
    """Every stored artifact that the release was made from; retention may have deleted the first two."""
    first: tuple[Stage, ...] = ("download", "quantize")
    found = {stage: artifacts.find(stage, release.plan.stages[stage].key) for stage in first}
    kept = {stage: manifest for stage, manifest in found.items() if manifest is not None}
    return {**kept, "build": engine, "assemble": rendered}


def _artifact(release: Release, stage: Stage, artifacts: ArtifactStore) -> Manifest:
    key = release.plan.stages[stage].key
    manifest = artifacts.find(stage, key)
    if manifest is None:
        raise InputError(f"artifact {stage} {key[:12]} does not exist", remedy=f"Run {stage} first.")
    return manifest
