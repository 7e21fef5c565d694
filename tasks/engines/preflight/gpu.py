"""engine.options of the GPU engines, and what every GPU engine checks before any pod starts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tasks.contracts.base import read_contract
from tasks.contracts.errors import InputError
from tasks.contracts.fit.host_cache import HOST_CACHE
from tasks.contracts.fit.resolution import ResolvedRelease, resolve
from tasks.contracts.fit.step_needs import gpus_to_hold
from tasks.contracts.spec.gpu_formats import FORMATS, KV_CACHES, modelopt_makes, served
from tasks.contracts.spec.spec import ReleaseSpec
from tasks.contracts.stored.plan import Source
from tasks.engines.checkpoint.config_reading import check_readable, generations_of
from tasks.engines.checkpoint.files import CONFIG, check_files
from tasks.engines.checkpoint.positions import check_limits
from tasks.engines.preflight.adapters import highest_rank
from tasks.engines.preflight.chat import chat_template_of
from tasks.engines.preflight.experts import check_experts
from tasks.engines.preflight.hub_metadata import (
    Documents,
    check_not_quantized_twice,
    quantization_of,
    stated_cache,
)
from tasks.engines.preflight.memory_fit import GIB, USABLE, MemoryFit, bytes_on_gpus, weights_bytes
from tasks.engines.preflight.model_shape import check_parallel, missing_fields, shape_of
from tasks.engines.preflight.speculation import draft_bytes
from tasks.engines.preflight.suggestions import check_fit, queueing


@dataclass(frozen=True)
class Option:
    """One of engine.options."""

    expected: str
    takes: Callable[[Any], bool]


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return isinstance(value, float) and 0 < value < 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MAX_HOST_GIB


MAX_HOST_GIB = 2**14
"""More than the memory of any node."""

CHUNKED_PREFILL = "chunked_prefill"
COMMON: Mapping[str, Option] = {
    "chat_template": Option(
        "apply or none; apply where the tokenizer has one when absent", {"apply", "none"}.__contains__
    ),
    "kv_cache_fraction": Option("above 0 and below 1, 0.9 when absent", _is_share),
    "max_num_tokens": Option("1 or more", _is_count),
    CHUNKED_PREFILL: Option("true or false, the runtime's own choice when absent", _is_switch),
    HOST_CACHE: Option("above 0, none when absent", _is_size),
}
"""Whether prompts are wrapped; the cache's share of the memory that the model leaves free (vllm: the server's share of
the whole GPU); tokens of one step; whether a prompt may be computed in several steps; and GiB of the host's memory, for
each GPU, that keep blocks of the cache which left the GPU."""

GUIDED_DECODING = "guided_decoding_backend"
"""What makes answers obey a JSON Schema, where the runtime does not do it by itself."""

PREFIX_CACHING = Option("true or false, true when absent", _is_switch)
"""Whether prompts that begin alike share their cache."""

EAGER = Option("true or false, false when absent", _is_switch)
"""Whether CUDA graphs are disabled."""

MAX_LORAS = Option("1 or more, as many as engine.lora names when absent", _is_count)
"""LoRA adapters on the GPU at once; a request for another one waits until it is loaded."""


def check_options(spec: ReleaseSpec, options: Mapping[str, Option]) -> None:
    """Refuse options that the kind does not have, and values that they do not take.

    Raises:
        InputError: the option, and the known ones.
    """
    for name, value in spec.engine.options.items():
        if name not in options or not options[name].takes(value):
            known = ", ".join(f"{each} ({option.expected})" for each, option in options.items())
            raise InputError(
                f"engine.options.{name} does not exist for {spec.engine.kind}, or takes other values",
                found=repr(value),
                expected=known,
                remedy="Correct or remove it.",
            )
    _check_step(spec)


def _check_step(spec: ReleaseSpec) -> None:
    """Refuse steps that hold fewer tokens than the engine may have to compute at once."""
    engine, chunked = spec.engine, spec.engine.options.get(CHUNKED_PREFILL) is True
    tokens = engine.options.get("max_num_tokens")
    batch = engine.tokens_of_a_batch
    least = batch if chunked else max(batch, engine.max_input_tokens)
    if tokens is not None and int(tokens) < least:
        prompt = "" if chunked else f"{engine.max_input_tokens} (max_input_tokens) and "
        raise InputError(
            "engine.options.max_num_tokens is too low: a step holds "
            f"{'' if chunked else 'a whole prompt and '}a token of every sequence",
            found=str(tokens),
            expected=f"at least {prompt}{batch} (max_batch_size"
            f"{f' x {batch // engine.max_batch_size} with the tokens that are guessed' if engine.speculative else ''})",
            remedy="Raise it or remove it." if chunked else f"Raise it, remove it, or set {CHUNKED_PREFILL}.",
        )


def check_host_cache(spec: ReleaseSpec, *, shares_cache: bool) -> None:
    """Refuse host memory that TensorRT-LLM would not use: only blocks that other requests may share move there.

    Raises:
        InputError: the engine shares none of its cache between requests.
    """
    if HOST_CACHE in spec.engine.options and not shares_cache:
        raise InputError(
            f"engine.options.{HOST_CACHE} has no effect: TensorRT-LLM keeps only blocks that requests may share, and "
            "this engine shares none",
            found=f"format {spec.quantization.format}, kv_cache {spec.quantization.kv_cache}, prefix_caching "
            f"{str(spec.engine.options.get('prefix_caching', True)).lower()}",
            remedy="Remove it, or let prompts share their cache.",
        )


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
    check_readable(config, generations_of(release.runtime), f"{source.repo}@{source.revision}")
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


def kv_cache_fraction(spec: ReleaseSpec) -> float:
    """The runtime's share of memory, in the sense of its own setting."""
    return float(spec.engine.options.get("kv_cache_fraction", USABLE))


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
