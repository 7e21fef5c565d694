"""quantize: from the downloaded checkpoint to the weights that will be served, and what that cost in perplexity."""

from collections.abc import Sequence

from tasks.adapters.workspace import Outcome, Workspace
from tasks.contracts.errors import InputError
from tasks.contracts.plan import DatasetFile
from tasks.contracts.release import Release
from tasks.engines.registry import engine_for


def run(release: Release, workspace: Workspace) -> Outcome:
    """Bring the model to the asked format, measure perplexity before and after, and store it.

    Raises:
        InputError: scratch is too small, the checkpoint is damaged, its architecture is unknown, or a dataset has no
            usable text.
    """
    spec, stages = release.spec, release.plan.stages
    workspace.require_space(release.plan.estimate.scratch_bytes, "quantize")
    checkpoint, out = workspace.folder("checkpoint"), workspace.folder("quantized")
    workspace.artifacts.fetch("download", stages["download"].key, checkpoint)
    calibration = _calibration(release, workspace)
    started = workspace.clock.monotonic()
    metrics = engine_for(spec.engine.kind).quantize(
        checkpoint,
        spec,
        out,
        calibration=calibration,
        perplexity_texts=_texts(release.plan.datasets.perplexity, workspace),
    )
    manifest = workspace.artifacts.store(
        "quantize",
        stages["quantize"].key,
        out,
        inputs={"download": stages["download"].key},
        producer=stages["quantize"].fields.get("producer", {}),
        metrics=metrics,
        seconds=workspace.clock.monotonic() - started,
    )
    return Outcome(
        f"{spec.quantization.format}: {manifest.size_bytes / 2**20:.1f} MiB{_perplexity_in_words(metrics)}",
        {"key": manifest.key, "size_bytes": manifest.size_bytes, "metrics": metrics},
    )


def _calibration(release: Release, workspace: Workspace) -> Sequence[str]:
    asked, dataset = release.spec.quantization.calibration, release.plan.datasets.calibration
    texts = _texts(dataset, workspace)
    if asked is None or dataset is None:
        return texts
    if len(texts) < asked.samples:
        raise InputError(
            f"calibration set {dataset.repo}/{dataset.file.path} has {len(texts)} texts, "
            f"quantization.calibration.samples asks for {asked.samples}. Ask for fewer, or name a larger set."
        )
    return texts[: asked.samples]


def _texts(dataset: DatasetFile | None, workspace: Workspace) -> Sequence[str]:
    if dataset is None:
        return []
    texts = [line.get("text") for line in workspace.read_dataset(dataset)]
    usable = [text for text in texts if isinstance(text, str) and text]
    if not usable or len(usable) != len(texts):
        raise InputError(
            f"{dataset.repo}/{dataset.file.path}: {len(usable)} of {len(texts)} lines hold a text; expected "
            '{"text": str} on each line and at least one line. Mend the dataset or name another.'
        )
    return usable


def _perplexity_in_words(metrics: dict[str, object]) -> str:
    if "perplexity" not in metrics:
        return ""
    after, before = metrics["perplexity"], metrics["source_perplexity"]
    if not isinstance(after, float) or not isinstance(before, float):
        return ", perplexity is not finite"
    return f", perplexity {after:.3f} (source {before:.3f})"
