"""Refuses what does not fit on its GPUs, and suggests single changes of the spec that plan would accept."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.gpu_formats import FORMATS, KV_CACHES, Row, served
from slipway.tasks.contracts.spec.spec import Calibration, ReleaseSpec
from slipway.tasks.engines.preflight.memory_fit import BITS, GIB, KV_BYTES, MemoryFit, Need, lora_slots

Accepts = Callable[[ReleaseSpec], bool]
"""Whether plan accepts a spec, apart from its memory."""

Changes = dict[str, Any]

ANY_TEXTS = Calibration(dataset="hf://datasets/any/texts@main/texts.jsonl")
"""Placeholder for the dataset that a person would name; no check here depends on which."""


def queueing(fit: MemoryFit) -> str | None:
    """A warning where the cache holds fewer full sequences than a batch; None where it holds all of them."""
    engine, sequences = fit.spec.engine, fit.sequences()
    if sequences >= engine.max_batch_size:
        return None
    return (
        f"the KV cache on {engine.gpu} holds {sequences} of max_batch_size {engine.max_batch_size} sequences of "
        f"{engine.max_sequence_tokens} tokens; requests that it has no room for wait"
    )


def check_fit(fit: MemoryFit, accepts: Accepts) -> Need:
    """Refuse what does not fit on the GPU, and name changes of the spec with which it would.

    Raises:
        InputError: the parts, the memory there is, and the changes that would help.
    """
    need, spec = fit.need(), fit.spec
    if fit.fits():
        return need
    changes = suggestions_for(fit, accepts)
    adapters = f"adapters {need.adapters / GIB:.1f}, " if need.adapters else ""
    draft = f"draft model {need.draft / GIB:.1f}, " if need.draft else ""
    raise InputError(
        f"{spec.source.model} in {spec.quantization.format} needs {need.total / GIB:.1f} GiB on each "
        f"{spec.engine.gpu}: weights {need.weights / GIB:.1f}, {draft}{adapters}KV cache {need.kv_cache / GIB:.1f} for "
        f"one sequence of {spec.engine.max_sequence_tokens} tokens, workspace {need.workspace / GIB:.1f}",
        found=f"{max(0, fit.room(need)) / GIB:.1f} GiB for the cache, of {fit.gpu.memory_gib:g} "
        f"(kv_cache_fraction {fit.share:g})",
        remedy=f"What would fit: {'; '.join(changes)}." if changes else "Choose a GPU with more memory.",
    )


def suggestions_for(fit: MemoryFit, accepts: Accepts) -> list[str]:
    """Single changes with which it would fit: lower limits, a smaller cache or format, more GPUs of the node."""

    def does(changes: Changes) -> bool:
        return fit.fits(**changes) and accepts(fit.changed(**changes))

    changes = [text for text, changes in (*_less_at_once(fit), *_smaller(fit)) if does(changes)]
    tensor = next((tensor for tensor in _more_gpus(fit) if does({"tensor_parallel": tensor})), None)
    return changes if tensor is None else [*changes, f"tensor_parallel {tensor}"]


def _less_at_once(fit: MemoryFit) -> Iterator[tuple[str, Changes]]:
    engine = fit.spec.engine
    for field, least in (("max_sequence_tokens", engine.max_input_tokens + 1), ("max_batch_size", 1)):
        if largest := _largest(fit, field, least):
            yield f"{field} {largest}", {field: largest}
    if lora_slots(fit.spec) > 1:
        yield "options.max_loras 1", {"options": {**engine.options, "max_loras": 1}}


def _largest(fit: MemoryFit, field: str, least: int) -> int | None:
    """The largest value of a limit with which the model fits; None where not even `least` does."""
    if not fit.fits(**{field: least}):
        return None
    values = range(least, getattr(fit.spec.engine, field) + 1)
    return least + bisect_left(values, True, key=lambda value: not fit.fits(**{field: value})) - 1


def _smaller(fit: MemoryFit) -> Iterator[tuple[str, Changes]]:
    current = fit.spec.quantization
    for name in _served(KV_CACHES, fit):
        if KV_BYTES[name] < KV_BYTES[current.kv_cache]:
            yield _quantized(f"kv_cache {name}", fit, {"kv_cache": name})
    for name in _served(FORMATS, fit):
        if BITS[name] < BITS[current.format] and not fit.quantized:
            yield _quantized(f"format {name}", fit, {"format": name})


def _quantized(text: str, fit: MemoryFit, changes: Changes) -> tuple[str, Changes]:
    """The change, and with it the calibration set that it needs or no longer reads."""
    current = fit.spec.quantization
    reads = current.model_copy(update=changes).reads_texts(fit.spec.engine.traits)
    if reads == (current.calibration is not None):
        return text, changes
    with_or_without = "with" if reads else "without"
    return f"{text} {with_or_without} calibration", {**changes, "calibration": ANY_TEXTS if reads else None}


def _more_gpus(fit: MemoryFit) -> Sequence[int]:
    """Larger tensor_parallel that stays on one node where all ranks do now: several nodes need more of a site."""
    engine, per_node = fit.spec.engine, fit.gpu.per_node
    spans = engine.ranks > per_node
    more = range(engine.tensor_parallel + 1, per_node + 1)
    return [tensor for tensor in more if spans or tensor * engine.pipeline_parallel <= per_node]


def _served(rows: Sequence[Row], fit: MemoryFit) -> list[Any]:
    return served(rows, fit.spec.engine.kind, fit.gpu.architecture)
