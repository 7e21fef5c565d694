"""quantize: from the downloaded checkpoint to the weights that will be served, and what that cost in perplexity."""

from slipway.tasks.adapters.workspace import Outcome, Workspace
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.engines.checkpoint.calibration_texts import texts_for
from slipway.tasks.engines.registry import maker_for


def run(release: Release, workspace: Workspace) -> Outcome:
    """Bring the model to the spec's format, measure perplexity before and after, and store it.

    Raises:
        InputError: scratch is too small, the checkpoint is damaged, its architecture is unknown, or a dataset has no
            usable text.
    """
    spec, stages = release.spec, release.plan.stages
    workspace.require_space(release.plan.estimate.scratch_bytes, "quantize")
    checkpoint, out = workspace.folder("checkpoint"), workspace.folder("quantized")
    workspace.artifacts.fetch("download", stages["download"].key, checkpoint)
    texts = texts_for(spec, release.plan.datasets, workspace.datasets.read)
    started = workspace.clock.monotonic()
    metrics = maker_for(spec.engine.kind).quantize(checkpoint, spec, out, texts)
    manifest = workspace.artifacts.store(
        "quantize",
        stages["quantize"].key,
        out,
        inputs={"download": stages["download"].key},
        producer=stages["quantize"].producer,
        metrics=metrics,
        seconds=workspace.clock.monotonic() - started,
    )
    return Outcome(
        f"{spec.quantization.format}: {manifest.size_bytes / 2**20:.1f} MiB{_described(metrics)}",
        {"key": manifest.key, "size_bytes": manifest.size_bytes, "metrics": metrics},
    )


def _described(metrics: dict[str, object]) -> str:
    if "perplexity" not in metrics:
        return ""
    after, before = metrics["perplexity"], metrics["source_perplexity"]
    if not isinstance(after, float) or not isinstance(before, float):
        return ", perplexity is not finite"
    return f", perplexity {after:.3f} (source {before:.3f})"
