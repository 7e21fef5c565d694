"""The refusal of what does not fit on its GPUs, and the single changes of the spec with which plan would take it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tasks.contracts.compatibility import FORMATS, KV_CACHES, Row, served
from tasks.contracts.errors import InputError
from tasks.contracts.spec import Calibration, Quantization, ReleaseSpec
from tasks.engines.memory import BITS, GIB, KV_BYTES, Fitting, Need, adapter_slots

Accepts = Callable[[ReleaseSpec], bool]
"""Whether plan takes a spec, memory apart."""

Changes = dict[str, Any]

ANY_TEXTS = Calibration(dataset="hf://datasets/any/texts@main/texts.jsonl")
"""In place of the set that a remedy asks for: nothing that is judged here depends on which one it is."""


def check_fit(fitting: Fitting, accepts: Accepts) -> Need:
    """Refuse what does not fit on the GPU, in words that say what would.

    Raises:
        InputError: the parts, what there is, and the changes that would do.
    """
    need, spec = fitting.need(), fitting.spec
    if fitting.fits():
        return need
    remedies = remedies_of(fitting, accepts)
    adapters = f"adapters {need.adapters / GIB:.1f}, " if need.adapters else ""
    way_out = f"What would fit: {'; '.join(remedies)}." if remedies else "Choose a GPU with more memory."
    raise InputError(
        f"{spec.source.repo} in {spec.quantization.format} needs {need.total / GIB:.1f} GiB on each {spec.engine.gpu}: "
        f"weights {need.weights / GIB:.1f}, {adapters}KV cache {need.kv_cache / GIB:.1f} for "
        f"{spec.engine.max_batch_size} sequences of {spec.engine.max_sequence_tokens} tokens, workspace "
        f"{need.workspace / GIB:.1f}; of {fitting.gpu.memory_gib:g} the cache may have "
        f"{max(0, fitting.room(need)) / GIB:.1f} (kv_cache_fraction {fitting.share:g}). {way_out}"
    )


def remedies_of(fitting: Fitting, accepts: Accepts) -> list[str]:
    """Single changes with which it would fit: less at once, a smaller cache or format, more GPUs of the node."""

    def does(changes: Changes) -> bool:
        return fitting.fits(**changes) and accepts(fitting.changed(**changes))

    found = [words for words, changes in (*_less_at_once(fitting), *_smaller(fitting)) if does(changes)]
    tensor = next((tensor for tensor in _more_gpus(fitting) if does({"tensor_parallel": tensor})), None)
    return found if tensor is None else [*found, f"tensor_parallel {tensor}"]


def _less_at_once(fitting: Fitting) -> Iterator[tuple[str, Changes]]:
    engine = fitting.spec.engine
    batches = (n for n in range(engine.max_batch_size - 1, 0, -1) if fitting.fits(max_batch_size=n))
    if (batch := next(batches, None)) is not None:
        yield f"max_batch_size {batch}", {"max_batch_size": batch}
    if adapter_slots(fitting.spec) > 1:
        yield "options.max_loras 1", {"options": {**engine.options, "max_loras": 1}}


def _smaller(fitting: Fitting) -> Iterator[tuple[str, Changes]]:
    asked = fitting.spec.quantization
    for name in _served(KV_CACHES, fitting):
        if KV_BYTES[name] < KV_BYTES[asked.kv_cache]:
            yield _quantized(f"kv_cache {name}", asked, {"kv_cache": name})
    for name in _served(FORMATS, fitting):
        if BITS[name] < BITS[asked.format] and not fitting.quantized:
            yield _quantized(f"format {name}", asked, {"format": name})


def _quantized(words: str, asked: Quantization, changes: Changes) -> tuple[str, Changes]:
    """The change, and with it the calibration set that it needs or no longer reads."""
    reads = asked.model_copy(update=changes).reads_texts
    if reads == (asked.calibration is not None):
        return words, changes
    with_or_without = "with" if reads else "without"
    return f"{words} {with_or_without} calibration", {**changes, "calibration": ANY_TEXTS if reads else None}


def _more_gpus(fitting: Fitting) -> Sequence[int]:
    """Ranks of tensor parallelism that stay on one node where all ranks do now: several ask more of a site."""
    engine, per_node = fitting.spec.engine, fitting.gpu.per_node
    spans = engine.tensor_parallel * engine.pipeline_parallel > per_node
    more = range(engine.tensor_parallel + 1, per_node + 1)
    return [tensor for tensor in more if spans or tensor * engine.pipeline_parallel <= per_node]


def _served(rows: Sequence[Row], fitting: Fitting) -> list[Any]:
    return served(rows, fitting.spec.engine.kind, fitting.gpu.architecture)
