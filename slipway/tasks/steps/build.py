"""build: from quantized weights to an engine that is known to load and to generate."""

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.engines.registry import maker_for


def run(release: Release, workspace: Workspace) -> Outcome:
    """Build the engine, read back what it is, and store it.

    Raises:
        InputError: the engine does not load, or is not what the spec asks for.
    """
    spec, stages = release.spec, release.plan.stages
    quantized, out = workspace.folder("quantized"), workspace.folder("engine")
    workspace.artifacts.fetch("quantize", stages["quantize"].key, quantized)
    started = workspace.clock.monotonic()
    description = maker_for(spec.engine.kind).build(quantized, spec, out)
    manifest = workspace.artifacts.store(
        "build",
        stages["build"].key,
        out,
        inputs={"quantize": stages["quantize"].key},
        producer=stages["build"].producer,
        metrics={"engine": description},
        seconds=workspace.clock.monotonic() - started,
    )
    return Outcome(
        f"{spec.engine.kind} engine: {manifest.size_bytes / 2**20:.1f} MiB in {len(manifest.files)} files",
        {"key": manifest.key, "size_bytes": manifest.size_bytes, "engine": description},
    )
