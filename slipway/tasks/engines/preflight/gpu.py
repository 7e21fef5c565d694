"""What every GPU engine checks before any pod starts."""

from collections.abc import Callable
from dataclasses import replace

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease, resolve
from slipway.tasks.contracts.fit.step_needs import gpus_to_hold
from slipway.tasks.contracts.spec.gpu_formats import FORMATS, KV_CACHES, modelopt_makes, served
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import Source
from slipway.tasks.engines.checkpoint.config_reading import check_readable, generations_of
from slipway.tasks.engines.checkpoint.files import CONFIG, check_files
from slipway.tasks.engines.checkpoint.overriding import overridden
from slipway.tasks.engines.checkpoint.positions import check_limits
from slipway.tasks.engines.preflight.chat import chat_template_of
from slipway.tasks.engines.preflight.experts import check_experts
from slipway.tasks.engines.preflight.hub_metadata import (
    Documents,
    check_not_quantized_twice,
    quantization_of,
    stated_cache,
)
from slipway.tasks.engines.preflight.loras import highest_rank
from slipway.tasks.engines.preflight.memory_fit import GIB, MemoryFit, bytes_on_gpus, weights_bytes
from slipway.tasks.engines.preflight.model_shape import check_parallel, missing_fields, shape_of
from slipway.tasks.engines.preflight.speculation import draft_bytes
from slipway.tasks.engines.preflight.suggestions import check_fit, queueing

Check = Callable[[ResolvedRelease, Source, Documents], None]
"""EnginePlanner.check of a kind."""


def check_gpu_engine(release: ResolvedRelease, source: Source, documents: Documents, check: Check) -> None:
    """What every GPU engine needs of a model: files, limits, calibration, a division into ranks, and memory.

    Args:
        release: the spec on the site.
        source: the files that will be downloaded.
        documents: as for EnginePlanner.check.
        check: all that the kind checks; a change of the spec is suggested only if it passes.

    Raises:
        InputError: what cannot work, and what would.
    """
    spec = release.spec
    check_files(source)
    config = documents.get(CONFIG, {})
    check_limits(spec, config)
    read = overridden(config, spec.engine.overrides, source.name)
    check_readable(read, generations_of(release.runtime), source.name)
    check_not_quantized_twice(spec, source, documents)
    _check_calibration(spec)
    chat_template_of(spec, documents)
    check_experts(spec, config)
    fit = _fit(release, source, documents)

    def accepts(changed: ReleaseSpec) -> bool:
        try:
            changed = read_contract(ReleaseSpec, changed.model_dump(mode="json"), spec.name)
            check(resolve(changed, release.site), source, documents)
        except InputError:
            return False
        return True

    if fit:
        check_parallel(spec, fit.shape)
        check_fit(fit, accepts)
    _check_quantizing(release, source)


def memory_warnings(release: ResolvedRelease, source: Source, documents: Documents) -> tuple[str, ...]:
    """What a person should know about a release that is not refused: no estimate, or a cache that makes requests wait.

    Args:
        release: the spec on the site.
        source: the files that will be downloaded.
        documents: as for EnginePlanner.check.
    """
    fit = _fit(release, source, documents)
    if fit is None:
        missing = ", ".join(missing_fields(documents.get(CONFIG, {})))
        unknown = f"{CONFIG} has no {missing}, and the defaults of its model type are not known"
        return (f"plan cannot tell whether {source.repo} fits on {release.gpu.name}: {unknown}",)
    warning = queueing(fit)
    return (warning,) if warning else ()


def _fit(release: ResolvedRelease, source: Source, documents: Documents) -> MemoryFit | None:
    """The model on the release's GPU; None where its configuration does not say enough for an estimate."""
    shape, rank = shape_of(documents.get(CONFIG, {})), highest_rank(release.spec, documents)
    if shape is None:
        return None
    quantized = quantization_of(documents) is not None
    if stated_cache(documents) == "fp8" and release.spec.engine.traits.quantized_by_modelopt:
        shape = replace(shape, stated_cache_bytes=1)
    facts, draft = release.gpu.facts, draft_bytes(documents)
    return MemoryFit(release.spec, facts, shape, weights_bytes(source), quantized, rank, draft)


def _check_quantizing(release: ResolvedRelease, source: Source) -> None:
    """Refuse weights that no node's GPUs hold unquantized; quantize would fail on them after the download."""
    spec, site, gpu = release.spec, release.site, release.gpu
    held = bytes_on_gpus(spec, source)
    needed = gpus_to_hold(held, gpu.facts)
    if needed <= gpu.facts.per_node:
        return
    quantization = spec.quantization
    holding = [
        f"engine.gpu {name}"
        for name, other in sorted(site.gpus.items())
        if gpus_to_hold(held, other) <= other.per_node
        and quantization.format in served(FORMATS, spec.engine.kind, other.architecture)
        and quantization.kv_cache in served(KV_CACHES, spec.engine.kind, other.architecture)
        and (not spec.engine.traits.quantized_by_modelopt or modelopt_makes(quantization.format, other.architecture))
    ]
    raise InputError(
        f"{source.repo} has {held / GIB:.1f} GiB of weights before they are quantized to {quantization.format}, which "
        f"need {needed} {gpu.name} of {gpu.facts.memory_gib:g} GiB on one node",
        found=f"{gpu.facts.per_node} on a node of site {site.name}",
        remedy=f"What would hold them: {'; '.join(holding) or 'a GPU with more memory, or nodes with more GPUs'}.",
    )


def _check_calibration(spec: ReleaseSpec) -> None:
    quantization = spec.quantization
    reads_texts = quantization.reads_texts(spec.engine.traits)
    if reads_texts and quantization.calibration is None:
        raise InputError(
            f"quantization.calibration is missing: {quantization.format} with kv_cache {quantization.kv_cache} takes "
            "its scales from texts, and the quantizer's own would come from the internet",
            remedy="Name a dataset on the Hub.",
        )
    if not reads_texts and quantization.calibration is not None:
        raise InputError(
            f"quantization.calibration has no effect: {quantization.format} reads no texts", remedy="Remove it."
        )
