"""Whether a model fits on its GPUs: weights, KV cache and workspace per GPU, from config.json and sizes of files.

An estimate to refuse the impossible before a GPU is requested, not a measurement: what fits narrowly may still fail,
and what is refused could at best serve less than the spec requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.contracts.engine_kinds import QuantizationFormat
from tasks.contracts.errors import InputError
from tasks.contracts.plan import Source
from tasks.contracts.site import Gpu
from tasks.contracts.spec import ReleaseSpec
from tasks.engines.checkpoint.files import CONFIG

GIB = 2**30
KEPT_BYTES = 2
"""Bytes of a parameter that no format touches: embedding and last layer (TensorRT-LLM quantize.py leaves lm_head as it
is unless --quantize_lm_head; ModelOpt's presets disable it)."""

BITS: dict[QuantizationFormat, float] = {
    "none": 16,
    "int8_wo": 8,
    "int4_wo": 4,
    "int8_sq": 8,
    "int4_awq": 4 + 16 / 128,  # a 16-bit scale for 128 weights
    "w4a8_awq": 4 + 16 / 128,
    "fp8": 8,
    "nvfp4": 4 + 8 / 16,  # an 8-bit scale for 16 weights
}
KV_BYTES = {"none": 2, "fp8": 1, "int8": 1}

USABLE = 0.9
"""The share of memory that the runtimes take by default."""

RUNTIME_BYTES = GIB
"""CUDA context, kernels, NCCL's and the decoder's buffers: an allowance."""

BATCHED_TOKENS = 8192
"""Tokens of one step: the default of max_num_tokens in TensorRT-LLM 1.2."""


@dataclass(frozen=True)
class ModelShape:
    """A decoder's dimensions, from config.json."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    """Whether embedding and last layer are one matrix."""
    bytes_per_parameter: int

    @property
    def embedding_parameters(self) -> int:
        """Parameters of one of the two matrices as wide as the vocabulary."""
        return self.vocabulary * self.hidden


@dataclass(frozen=True)
class Need:
    """Bytes on the fullest GPU."""

    weights: int
    kv_cache: int
    workspace: int
    adapters: int = 0

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.weights + self.kv_cache + self.workspace + self.adapters


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Read config.json, or the text part of a model that has several.

    Raises:
        InputError: a field that the estimate of memory needs is missing.
    """
    text = config if "num_hidden_layers" in config else config.get("text_config", config)

    def number(name: str, otherwise: int | None = None) -> int:
        value = text.get(name, otherwise)
        if not isinstance(value, int) or value < 1:
            raise InputError(
                f"{CONFIG} has no valid {name}, which decides whether the model fits on a GPU",
                found=repr(value),
                expected="a number above 0",
                remedy="Choose a decoder whose configuration names it.",
            )
        return value

    heads, hidden = number("num_attention_heads"), number("hidden_size")
    dtype = str(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or "bfloat16")
    return ModelShape(
        layers=number("num_hidden_layers"),
        hidden=hidden,
        intermediate=number("intermediate_size", 4 * hidden),
        heads=heads,
        kv_heads=number("num_key_value_heads", heads),
        head_dim=number("head_dim", hidden // heads),
        vocabulary=number("vocab_size"),
        tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        bytes_per_parameter=4 if dtype == "float32" else KEPT_BYTES,
    )


def check_parallel(spec: ReleaseSpec, shape: ModelShape) -> None:
    """Refuse parallelism into which the model's heads or layers cannot be divided.

    Raises:
        InputError: heads over tensor parallel ranks, or layers over pipeline stages.
    """
    tensor, pipeline = spec.engine.tensor_parallel, spec.engine.pipeline_parallel
    if shape.heads % tensor or (shape.kv_heads % tensor and tensor % shape.kv_heads):
        fit = [
            n
            for n in range(1, shape.heads + 1)
            if not shape.heads % n and not (shape.kv_heads % n and n % shape.kv_heads)
        ]
        raise InputError(
            f"engine.tensor_parallel {tensor} does not divide the heads of {spec.source.repo}",
            found=f"{shape.heads} attention heads and {shape.kv_heads} for keys and values",
            remedy=f"Choose one of {', '.join(map(str, fit))}.",
        )
    if pipeline > shape.layers:
        raise InputError(
            f"engine.pipeline_parallel {pipeline} is more than the layers of {spec.source.repo}",
            expected=f"at most {shape.layers}",
            remedy="Lower it.",
        )


def weights_bytes(source: Source) -> int:
    """Bytes of all safetensors files, as the Hub lists them."""
    return sum(file.size_bytes for file in source.files if file.path.endswith(".safetensors"))


def bytes_on_gpus(spec: ReleaseSpec, source: Source) -> int:
    """Bytes that quantize holds on GPUs: the unquantized weights, or none where nothing is quantized."""
    quantization = spec.quantization
    return 0 if quantization.format == "none" and quantization.kv_cache == "none" else weights_bytes(source)


def batched_tokens(spec: ReleaseSpec) -> int:
    """Maximum tokens of one step; by default a whole prompt, and no less than the runtimes' own default."""
    tokens = spec.engine.options.get("max_num_tokens")
    return int(tokens) if tokens else max(BATCHED_TOKENS, spec.engine.max_input_tokens, spec.engine.max_batch_size)


def adapter_slots(spec: ReleaseSpec) -> int:
    """How many LoRA adapters are on a GPU at once: all, unless the spec says fewer or a batch cannot hold as many."""
    limit, adapters = spec.engine.options.get("max_loras"), len(spec.engine.lora)
    return min(adapters, spec.engine.max_batch_size, int(limit) if limit else adapters)


def need_of(
    spec: ReleaseSpec, shape: ModelShape, source_bytes: int, *, quantized: bool = False, adapter_rank: int = 0
) -> Need:
    """What one GPU must hold.

    Weights: the layers in the spec's format, split over all ranks by whole layers; the embedding whole, which
    TensorRT-LLM does not split by default; the last layer split over tensor parallel ranks. KV cache: two tensors a
    layer and token, for every sequence at its full length. Workspace: activations of one step and the logits of one
    token per sequence. Adapters: both matrices of the highest rank at every linear layer, for each that is loaded at
    once.

    Args:
        spec: format, parallelism and limits.
        shape: the model's dimensions.
        source_bytes: size of its safetensors files.
        quantized: the checkpoint is already in its format, and its files are as large as its weights.
        adapter_rank: highest rank that LoRA adapters have room for.
    """
    tensor, pipeline = spec.engine.tensor_parallel, spec.engine.pipeline_parallel
    layers = -(-shape.layers // pipeline)
    embedding = shape.embedding_parameters * KEPT_BYTES
    matrices = 1 if shape.tied else 2
    parameters = max(0, source_bytes // shape.bytes_per_parameter - matrices * shape.embedding_parameters)
    body = parameters * BITS[spec.quantization.format] / 8
    if quantized:
        body = max(0, source_bytes - matrices * embedding)
    weights = body * layers / shape.layers / tensor + embedding + embedding / tensor
    return Need(
        weights=int(weights),
        kv_cache=spec.engine.max_batch_size * spec.engine.max_sequence_tokens * _bytes_per_token(spec, shape, layers),
        workspace=_workspace(spec, shape),
        adapters=adapter_slots(spec) * layers * _adapter_bytes_per_layer(shape, adapter_rank),
    )


def _bytes_per_token(spec: ReleaseSpec, shape: ModelShape, layers: int) -> int:
    heads = max(1, shape.kv_heads // spec.engine.tensor_parallel)
    return 2 * layers * heads * shape.head_dim * KV_BYTES[spec.quantization.kv_cache]


def _adapter_bytes_per_layer(shape: ModelShape, rank: int) -> int:
    """Tensor parallel ranks share only a part of it (vllm/lora/layers/base_linear.py @ 01235a49)."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    attention = 2 * (shape.hidden + queries) + 2 * (shape.hidden + keys)
    return KEPT_BYTES * rank * (attention + 3 * (shape.hidden + shape.intermediate))


def _workspace(spec: ReleaseSpec, shape: ModelShape) -> int:
    per_token = KEPT_BYTES * (4 * shape.hidden + 2 * shape.intermediate // spec.engine.tensor_parallel)
    logits = 4 * spec.engine.max_batch_size * shape.vocabulary
    return RUNTIME_BYTES + batched_tokens(spec) * per_token + logits


@dataclass(frozen=True)
class MemoryFit:
    """A model on a GPU, and its needs if the spec were changed."""

    spec: ReleaseSpec
    gpu: Gpu
    shape: ModelShape
    source_bytes: int
    quantized: bool
    adapter_rank: int = 0

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
        return need_of(spec, self.shape, self.source_bytes, quantized=self.quantized, adapter_rank=self.adapter_rank)

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
        """Whether the model fits, with these changes."""
        need = self.need(**changes)
        return need.kv_cache <= self.room(need)
