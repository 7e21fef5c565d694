"""publish: make the complete Triton repository in the object store, with server-side copies."""

from tasks.adapters.progress import size
from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.artifact import Manifest, Stage
from tasks.contracts.errors import InputError
from tasks.contracts.release import Release
from tasks.serving.paths import ENGINE_FOLDER, MODEL_VERSION


def run(release: Release, workspace: Workspace) -> Outcome:
    """Copy assemble's rendered files and build's engine under one prefix, laid out as in the boot test.

    Raises:
        InputError: either artifact is missing, or both have a file of the same name.
        DigestMismatchError: a copy differs from its artifact's manifest.
    """
    rendered, engine = _artifact(release, workspace, "assemble"), _artifact(release, workspace, "build")
    engine_folder = f"{release.spec.name}/{MODEL_VERSION}/{ENGINE_FOLDER}"
    manifest = workspace.artifacts.compose(
        "publish",
        release.plan.stages["publish"].key,
        [(rendered, ""), (engine, engine_folder)],
        inputs={"assemble": rendered.key, "build": engine.key},
        producer={},
        metrics={},
    )
    uri = workspace.layout.artifact("publish", manifest.key)
    return Outcome(
        f"{release.id}: {len(manifest.files)} files, {size(manifest.size_bytes)}",
        {"key": manifest.key, "uri": uri, "size_bytes": manifest.size_bytes},
    )


def _artifact(release: Release, workspace: Workspace, stage: Stage) -> Manifest:
    key = release.plan.stages[stage].key
    manifest = workspace.artifacts.find(stage, key)
    if manifest is None:
        raise InputError(f"artifact {stage} {key[:12]} does not exist", remedy=f"Run {stage} first.")
    return manifest
