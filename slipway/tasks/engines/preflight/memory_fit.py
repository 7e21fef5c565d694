"""Whether a model fits on its GPUs: weights, KV cache and workspace per GPU, from config.json and sizes of files.

An estimate to refuse the impossible before a GPU is requested, not a measurement: what fits narrowly may still fail,
and what is refused could at best serve less than the spec requests.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from slipway.tasks.contracts.engine.engine_kinds import QuantizationFormat
from slipway.tasks.contracts.fit.step_needs import needs_gpu
from slipway.tasks.contracts.site.site import Gpu
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import Source
from slipway.tasks.engines.preflight.experts import attention_ranks, replicated_parameters
from slipway.tasks.engines.preflight.lora_memory import lora_bytes
from slipway.tasks.engines.preflight.model_shape import KEPT_BYTES, LayerCache, ModelShape

GIB = 2**30
BITS: dict[QuantizationFormat, float] = {
    "none": 16,
    "int8_wo": 8,
    "int4_wo": 4,
    "int8_sq": 8,
    "int4_awq": 4 + 16 / 128,  # a 16-bit scale for 128 weights
    "w4a8_awq": 4 + 16 / 128,
    "fp8": 8,
    "fp8_online": 8,
    "nvfp4": 4 + 8 / 16,  # an 8-bit scale for 16 weights
}
KV_BYTES = {"none": 2, "fp8": 1, "int8": 1}

USABLE = 0.9
"""The share of memory that the runtimes take by default."""

RUNTIME_BYTES = GIB
"""CUDA context, kernels, NCCL's and the decoder's buffers: an allowance."""

BATCHED_TOKENS = 8192
"""Tokens of one step: the default of max_num_tokens in TensorRT-LLM 1.2."""

BLOCK_TOKENS = 16
"""Tokens in a block of vLLM's cache; a window may begin in the middle of one."""

SIMILAR = 1.5
"""vLLM makes groups as large as the larger kind of layers where it has less than this many times the layers of the
other."""


@dataclass(frozen=True)
class Need:
    """Bytes on the fullest GPU."""

    weights: int
    kv_cache: int
    workspace: int
    adapters: int = 0
    draft: int = 0
    """Weights of the model that guesses tokens."""

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.weights + self.kv_cache + self.workspace + self.adapters + self.draft


def weights_bytes(source: Source) -> int:
    """Bytes of all safetensors files, as the Hub lists them."""
    return sum(file.size_bytes for file in source.files if file.path.endswith(".safetensors"))


def bytes_on_gpus(spec: ReleaseSpec, source: Source) -> int:
    """Bytes that quantize holds on GPUs: the unquantized weights, or none where nothing is quantized."""
    return weights_bytes(source) if spec.changes_weights and needs_gpu("quantize", spec) else 0


def batched_tokens(spec: ReleaseSpec) -> int:
    """Maximum tokens of one step; by default a whole prompt, and no less than the runtimes' own default.

    A prompt that may be computed in several steps need not fit into one.
    """
    engine = spec.engine
    tokens = engine.options.get("max_num_tokens")
    prompt = 0 if engine.options.get("chunked_prefill") is True else engine.max_input_tokens
    return int(tokens) if tokens else max(BATCHED_TOKENS, prompt, engine.tokens_of_a_batch)


def lora_slots(spec: ReleaseSpec) -> int:
    """How many LoRA adapters are on a GPU at once: all, unless the spec says fewer or a batch cannot hold as many.

    Where adapters are added to the live model, one slot more: vLLM lets a request of a further adapter wait while those
    that run have all slots, so a busy server would never answer to the new version of a name (`scheduled_loras` in
    vllm/v1/core/sched/scheduler.py at v0.27.1 and v0.32.0).
    """
    limit, adapters = spec.engine.options.get("max_loras"), len(spec.engine.lora)
    if spec.engine.room_rank:
        return min(spec.engine.max_batch_size, spec.engine.room + 1)
    return min(adapters, spec.engine.max_batch_size, int(limit) if limit else adapters)


def need_of(
    spec: ReleaseSpec, shape: ModelShape, source_bytes: int, *, quantized: bool = False, lora_rank: int = 0
) -> Need:
    """What one GPU must hold to serve one sequence at its full length.

    Weights: the layers in the spec's format, split over all ranks by whole layers; the embedding whole, which
    TensorRT-LLM does not split by default; the last layer split over tensor parallel ranks. KV cache: that of one
    sequence. Every runtime has a cache of pages, and lets requests wait that it has no pages for; without room for one
    sequence vLLM does not start, and TensorRT-LLM shortens max_seq_len (vllm/v1/core/kv_cache_utils.py,
    _check_enough_kv_cache_memory; trtGptModelInflightBatching.cpp, clampWindowSizesToFitAtLeastOneSequence). Workspace:
    activations of one step and the logits of one token per sequence. Adapters: lora_memory.py, for each that is
    loaded at once.

    Args:
        spec: format, parallelism and limits.
        shape: the model's dimensions.
        source_bytes: size of its safetensors files.
        quantized: the checkpoint is already in its format, and its files are as large as its weights.
        lora_rank: highest rank that LoRA adapters have room for.
    """
    return Need(
        weights=_weights(spec, shape, source_bytes, quantized=quantized),
        kv_cache=sequence_bytes(spec, shape),
        workspace=_workspace(spec, shape),
        adapters=lora_slots(spec) * lora_bytes(spec, shape, lora_rank),
    )


def _weights(spec: ReleaseSpec, shape: ModelShape, source_bytes: int, *, quantized: bool) -> int:
    tensor, pipeline = spec.engine.tensor_parallel, spec.engine.pipeline_parallel
    layers = -(-shape.layers // pipeline)
    embedding = shape.embedding_parameters * KEPT_BYTES
    matrices = 1 if shape.tied else 2
    parameters = max(0, source_bytes // shape.bytes_per_parameter - matrices * shape.embedding_parameters)
    body = parameters * BITS[spec.quantization.format] / 8
    if quantized:
        body = max(0, source_bytes - matrices * embedding)
    # an engine has two matrices even where the checkpoint has one; the other runtimes share it
    last = 0 if shape.tied and not spec.engine.traits.compiled else embedding / attention_ranks(spec)
    # a checkpoint that is already quantized is taken to have 8 bits in its attention
    attention = layers * 2 * shape.hidden * (shape.heads + shape.kv_heads) * shape.head_dim
    replicated = replicated_parameters(spec, attention) * (1 if quantized else BITS[spec.quantization.format] / 8)
    return int(body * layers / shape.layers / tensor + embedding + last + replicated)


def sequence_bytes(spec: ReleaseSpec, shape: ModelShape) -> int:
    """Bytes of the KV cache of one sequence of engine.max_sequence_tokens, on the fullest GPU."""
    stage = -(-shape.layers // spec.engine.pipeline_parallel)
    stages = [shape.caches[first : first + stage] for first in range(0, shape.layers, stage)]
    return max(_stage_bytes(spec, shape, [cache for cache in caches if cache]) for caches in stages)


def _stage_bytes(spec: ReleaseSpec, shape: ModelShape, caches: Sequence[LayerCache]) -> int:
    """Bytes of the cache of one sequence in the layers of one pipeline stage that have a cache."""
    alike: dict[LayerCache, list[LayerCache]] = {}
    for cache in caches:
        alike.setdefault(replace(cache, window=None), []).append(cache)
    width = shape.stated_cache_bytes or KV_BYTES[spec.quantization.kv_cache]
    keys = sum(
        _token_slots(spec, [cache.window for cache in same])
        * _elements_per_token(spec, each)
        * width
        // each.tokens_per_entry
        for each, same in alike.items()
    )
    return keys + len(caches) * spec.engine.max_sequence_tokens * shape.indexer_bytes


def _elements_per_token(spec: ReleaseSpec, cache: LayerCache) -> int:
    """Elements that a layer caches of a token: keys and values, or one latent that every tensor parallel rank holds.

    vLLM: MLAAttentionSpec (vllm/v1/kv_cache_interface.py at v0.19.0, v0.22.1 and v0.24.0). TensorRT-LLM with PyTorch:
    cache type SELFKONLY with one head of kv_lora_rank + qk_rope_head_dim (tensorrt_llm/_torch/pyexecutor/_util.py, near
    1.2). The runtime of engines has room for keys and values of that head (cpp/tensorrt_llm/batch_manager/
    trtGptModelInflightBatching.cpp @ 00825c4e, createKvCacheManager).
    """
    if cache.latent is not None:
        return cache.latent * (2 if spec.engine.traits.compiled else 1)
    heads = max(1, cache.kv_heads // attention_ranks(spec))
    return 2 * heads * cache.head_dim


def _token_slots(spec: ReleaseSpec, windows: Sequence[int | None]) -> int:
    """Tokens times layers that the cache keeps for a sequence, in the layers of one pipeline stage.

    Without max_attention_window, TensorRT-LLM keeps whole sequences in every layer, in the runtime of engines
    (cpp/tensorrt_llm/batch_manager/trtGptModel.h @ 2e2327b9) and in that of PyTorch
    (tensorrt_llm/_torch/pyexecutor/resource_manager.py, KVCacheManager, @ 001541ba). vLLM keeps a window and the tokens
    of a step, and pads groups of layers to one size (vllm/v1/kv_cache_interface.py, SlidingWindowSpec, and
    vllm/v1/core/kv_cache_utils.py, _max_memory_usage_bytes_from_groups, at v0.19.0, v0.22.1 and v0.24.0).
    """
    tokens = spec.engine.max_sequence_tokens
    if not spec.engine.traits.cache_of_windows:
        return tokens * len(windows)
    groups = Counter(tokens if window is None else _in_window(spec, window) for window in windows)
    smallest, largest = min(groups.values()), max(groups.values())
    size = largest if largest < SIMILAR * smallest else smallest
    return sum(length * -(-layers // size) * size for length, layers in groups.items())


def _in_window(spec: ReleaseSpec, window: int) -> int:
    return min(window - 1 + batched_tokens(spec) + BLOCK_TOKENS, spec.engine.max_sequence_tokens)


def _workspace(spec: ReleaseSpec, shape: ModelShape) -> int:
    """Activations of one step and logits; a token of a mixture of experts is copied to each expert that it uses."""
    tensor = spec.engine.tensor_parallel
    dense = 4 * shape.hidden + 2 * shape.intermediate // tensor
    experts = shape.experts_per_token * (shape.hidden + 2 * shape.expert_intermediate // tensor)
    logits = 4 * spec.engine.max_batch_size * shape.vocabulary
    return RUNTIME_BYTES + batched_tokens(spec) * KEPT_BYTES * (dense + experts) + logits


@dataclass(frozen=True)
class MemoryFit:
    """A model on a GPU, and its needs if the spec were changed."""

    spec: ReleaseSpec
    gpu: Gpu
    shape: ModelShape
    source_bytes: int
    quantized: bool
    lora_rank: int = 0
    draft_bytes: int = 0
    """Size of the draft model's files; runtimes split it over the tensor parallel ranks, as they do the model."""

    def changed(self, **changes: Any) -> ReleaseSpec:
        """The spec with fields of its engine or quantization changed."""
        engine, quantization = self.spec.engine, self.spec.quantization
        of_engine = {name: value for name, value in changes.items() if name in type(engine).model_fields}
        of_quantization = {name: value for name, value in changes.items() if name not in of_engine}
        return self.spec.model_copy(
            update={
                "engine": engine.model_copy(update=of_engine),
                "quantization": quantization.model_copy(update=of_quantization),
            }
        )

    def need(self, **changes: Any) -> Need:
        """What one GPU must hold, with fields of the spec's engine or quantization changed."""
        spec = self.changed(**changes)
        need = need_of(spec, self.shape, self.source_bytes, quantized=self.quantized, lora_rank=self.lora_rank)
        return replace(need, draft=-(-self.draft_bytes // spec.engine.tensor_parallel))

    @property
    def share(self) -> float:
        """The runtime's share of all memory, or of what the model leaves free."""
        return float(self.spec.engine.options.get("kv_cache_fraction", USABLE))

    def room(self, need: Need) -> int:
        """Bytes left for the cache; below 0 when the rest alone does not fit."""
        memory, rest = int(self.gpu.memory_gib * GIB), need.total - need.kv_cache
        if self.spec.engine.traits.cache_share_of_free:
            return int((memory - rest) * self.share)
        return int(memory * self.share) - rest

    def fits(self, **changes: Any) -> bool:
        """Whether the model and the cache of one sequence fit, with these changes."""
        return self.sequences(**changes) > 0

    def sequences(self, **changes: Any) -> int:
        """How many sequences of engine.max_sequence_tokens the cache holds at once, with these changes."""
        need = self.need(**changes)
        room = self.room(need)
        if need.kv_cache == 0:  # no layer has a cache: a batch is all that the runtime takes at once
            return self.changed(**changes).engine.max_batch_size if room > 0 else 0
        return max(0, room) // need.kv_cache
