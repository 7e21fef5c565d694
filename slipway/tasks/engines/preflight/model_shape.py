"""A decoder's dimensions, read from config.json: what the estimate of its memory starts from. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.config_defaults import completed
from slipway.tasks.engines.checkpoint.files import CONFIG
from slipway.tasks.engines.checkpoint.foreign import LARGEST, MOST_LAYERS, QUOTED_CHARS
from slipway.tasks.engines.preflight.experts import attention_ranks
from slipway.tasks.engines.preflight.layer_kinds import caching_layers, is_hybrid

KEPT_BYTES = 2
"""Bytes of a parameter that no format touches: embedding and last layer (TensorRT-LLM quantize.py leaves lm_head as it
is unless --quantize_lm_head; ModelOpt's presets disable it)."""

NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
"""Fields without which there is no estimate; all others follow from them where they are absent."""

LATENT_ATTENTION = frozenset(
    {
        *("AXK1", "bailing_hybrid", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "glm4_moe_lite"),
        *("glm_moe_dsa", "kimi_k2", "kimi_linear", "longcat_flash", "pangu_ultra_moe"),
    }
)
"""Model types whose cache holds latents (vllm/transformers_utils/model_arch_config_convertor.py, is_deepseek_mla, at
v0.24.0). MiniCPM3 has the fields too, and vLLM caches its keys and values in full."""

INDEXER_SCALE_BYTES = 4
"""Beside the 8-bit key of sparse attention's indexer, for each 128 of its elements (vllm/model_executor/models/
deepseek_v2.py, DeepseekV32IndexerCache)."""
INDEXER_BLOCK = 128

FULL_EVERY: Mapping[str, int] = {"cohere2": 4, "exaone4": 4, "gemma2": 2, "gemma3_text": 6, "gpt_oss": 2, "olmo3": 4}
"""Of so many layers the last attends to the whole sequence and the others to a window, unless `layer_types` or
`sliding_window_pattern` say otherwise (transformers 4.57.3 and 5.14.1, compared in tests/local/modelopt)."""

SLIDING = "sliding_attention"
"""The value of `layer_types` for a layer with a window."""


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps of a sequence."""

    kv_heads: int
    head_dim: int
    """Elements of a key and a value, the mean of both."""
    window: int | None = None
    """How many tokens it attends to; None: all of them."""
    latent: int | None = None
    """Elements that multi-head latent attention caches for a token in place of keys and values."""
    tokens_per_entry: int = 1
    """Tokens that one cached entry stands for."""


@dataclass(frozen=True)
class ModelShape:
    """A decoder's dimensions."""

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
    caches: tuple[LayerCache | None, ...]
    """The cache of each layer; None for a layer without one."""
    indexer_bytes: int = 0
    """Bytes that the indexer of sparse attention caches for a token and layer, whatever the type of the cache."""
    stated_cache_bytes: int | None = None
    """Bytes of an element of the cache where the checkpoint states its format."""
    hybrid: bool = False
    """Whether some layers keep a state in place of keys and values."""
    sparse: bool = False
    """Whether attention reads only the entries that an indexer chooses."""
    experts_per_token: int = 0
    expert_intermediate: int = 0

    @property
    def embedding_parameters(self) -> int:
        """Parameters of one of the two matrices as wide as the vocabulary."""
        return self.vocabulary * self.hidden


def missing_fields(config: Mapping[str, Any]) -> list[str]:
    """Fields that the estimate needs, and that neither config.json nor a known model type has."""
    text = completed(config)
    return [name for name in NEEDED if name not in text]


def shape_of(config: Mapping[str, Any]) -> ModelShape | None:
    """Read config.json, or the language model's part of one that has several; None where fields are missing.

    Raises:
        InputError: a field that the estimate of memory needs has a value that no model can have.
    """
    if missing_fields(config):
        return None
    text = completed(config)
    layers, heads, hidden = _layers(text), _number(text, "num_attention_heads"), _number(text, "hidden_size")
    experts = _count(text.get("num_experts_per_tok")) or _count(text.get("top_k_experts"))
    intermediate = _number(text, "intermediate_size", 4 * hidden)
    index_dim = _count(text.get("index_head_dim"))
    return ModelShape(
        layers=layers,
        hidden=hidden,
        intermediate=max(intermediate, _count(text.get("intermediate_size_mlp"))),
        heads=heads,
        kv_heads=_kv_heads(text, heads),
        head_dim=_number(text, "head_dim", max(1, hidden // heads)),
        vocabulary=_number(text, "vocab_size"),
        tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        bytes_per_parameter=_bytes_per_parameter(config, text),
        caches=_caches(text, layers, heads, hidden),
        indexer_bytes=index_dim + index_dim // INDEXER_BLOCK * INDEXER_SCALE_BYTES,
        hybrid=is_hybrid(text, layers),
        sparse=bool(_count(text.get("index_topk"))),
        experts_per_token=experts,
        expert_intermediate=(_count(text.get("moe_intermediate_size")) or intermediate) if experts else 0,
    )


def check_parallel(spec: ReleaseSpec, shape: ModelShape) -> None:
    """Refuse parallelism into which the model's heads or layers cannot be divided.

    Raises:
        InputError: heads over tensor parallel ranks, or layers over pipeline stages.
    """
    tensor, pipeline = attention_ranks(spec), spec.engine.pipeline_parallel
    if shape.heads % tensor or (shape.kv_heads % tensor and tensor % shape.kv_heads):
        fit = [
            n
            for n in range(1, shape.heads + 1)
            if not shape.heads % n and not (shape.kv_heads % n and n % shape.kv_heads)
        ]
        raise InputError(
            f"engine.tensor_parallel {tensor} does not divide the heads of {spec.source.model}",
            found=f"{shape.heads} attention heads and {shape.kv_heads} for keys and values",
            remedy=f"Choose one of {', '.join(map(str, fit))}.",
        )
    if pipeline > shape.layers:
        raise InputError(
            f"engine.pipeline_parallel {pipeline} is more than the layers of {spec.source.model}",
            expected=f"at most {shape.layers}",
            remedy="Lower it.",
        )


def _number(text: Mapping[str, Any], name: str, otherwise: int | None = None) -> int:
    value = text.get(name)
    if isinstance(value, list):  # one for each layer: the largest decides
        value = max((_count(each) for each in value), default=0)
    if value is None and otherwise is not None:
        return otherwise
    if not (number := _count(value)):
        raise InputError(
            f"{CONFIG} has no valid {name}, which decides whether the model fits on a GPU",
            found=repr(value)[:QUOTED_CHARS],
            expected=f"a number above 0, at most {LARGEST}",
            remedy="Choose a decoder whose configuration names it.",
        )
    return number


def _layers(text: Mapping[str, Any]) -> int:
    layers = _number(text, "num_hidden_layers")
    if layers > MOST_LAYERS:
        raise InputError(
            f"{CONFIG} has an impossible num_hidden_layers",
            found=str(layers),
            expected=f"at most {MOST_LAYERS}",
            remedy="Choose another revision.",
        )
    return layers


def _count(value: Any) -> int:
    """The value where it is a number above 0 that a model can have, and otherwise 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST else 0


def _kv_heads(text: Mapping[str, Any], heads: int) -> int:
    """Heads of keys and values; Falcon and GPT-BigCode have a switch for multi-query attention, DBRX a part."""
    if text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    part = text.get("attn_config")
    stated = _count(part.get("kv_n_heads")) if isinstance(part, Mapping) else 0
    return stated or _number(text, "num_key_value_heads", heads)


def _caches(text: Mapping[str, Any], layers: int, heads: int, hidden: int) -> tuple[LayerCache | None, ...]:
    """The cache of each layer."""
    head_dim = _number(text, "head_dim", max(1, hidden // heads))
    common = LayerCache(kv_heads=_kv_heads(text, heads), head_dim=head_dim, latent=_latent(text))
    of_layers = zip(
        caching_layers(text, layers),
        _windows(text, layers),
        _kv_heads_of_layers(text, layers, heads),
        _ratios(text, layers),
        strict=True,
    )
    return tuple(
        replace(
            _of_window(text, common, window),
            kv_heads=own or _of_window(text, common, window).kv_heads,
            window=window,
            tokens_per_entry=ratio,
        )
        if caches
        else None
        for caches, window, own, ratio in of_layers
    )


def _of_window(text: Mapping[str, Any], common: LayerCache, window: int | None) -> LayerCache:
    """Heads of a layer with or without a window, where the two kinds differ: MiMo V2 and Gemma 4."""
    if window is None:
        return replace(
            common,
            kv_heads=_count(text.get("num_global_key_value_heads")) or common.kv_heads,
            head_dim=_count(text.get("global_head_dim")) or common.head_dim,
        )
    return replace(
        common,
        kv_heads=_count(text.get("swa_num_key_value_heads")) or common.kv_heads,
        head_dim=_count(text.get("swa_head_dim")) or common.head_dim,
    )


def _kv_heads_of_layers(text: Mapping[str, Any], layers: int, heads: int) -> list[int]:
    """Heads of keys and values of each layer where they differ (OpenELM, DeciLM), and otherwise 0."""
    stated, blocks = text.get("num_key_value_heads"), text.get("block_configs")
    if isinstance(stated, list) and len(stated) == layers:
        return [_count(each) for each in stated]
    if isinstance(blocks, list) and len(blocks) == layers:
        return [_kv_heads_of_block(block, heads) for block in blocks]
    return [0] * layers


def _kv_heads_of_block(block: Any, heads: int) -> int:
    attention = block.get("attention") if isinstance(block, Mapping) else None
    attention = attention if isinstance(attention, Mapping) else {}
    group = _count(attention.get("n_heads_in_group"))
    return heads // group if group else _count(attention.get("num_key_value_heads"))


def _ratios(text: Mapping[str, Any], layers: int) -> list[int]:
    """Tokens that an entry of each layer stands for: DeepSeek-V4 compresses its cache."""
    ratios = text.get("compress_ratios")
    if not isinstance(ratios, list) or not layers <= len(ratios) <= MOST_LAYERS:
        return [1] * layers
    return [max(1, _count(each)) for each in ratios[:layers]]  # further ones are those of layers that predict


def _latent(text: Mapping[str, Any]) -> int | None:
    if text["model_type"] not in LATENT_ATTENTION:
        return None
    if "compress_ratios" in text:
        return _count(text.get("head_dim")) or None
    rank = _count(text.get("kv_lora_rank"))
    return rank + _count(text.get("qk_rope_head_dim")) if rank else None


def _windows(text: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    """The window of each layer. Chunked attention counts as full: every runtime caches it whole.

    vLLM turns its hybrid cache manager off for chunked attention (vllm/config/vllm.py at v0.19.0 and v0.24.0), and
    TensorRT-LLM 1.2 keeps whole sequences (memory_fit.py).
    """
    window = _count(text.get("sliding_window"))
    if not window or text.get("use_sliding_window") is False:
        return (None,) * layers
    return tuple(window if sliding else None for sliding in _sliding(text, layers))


def _sliding(text: Mapping[str, Any], layers: int) -> Sequence[bool]:
    types = text.get("layer_types")
    if isinstance(types, list) and len(types) == layers:
        return [each == SLIDING for each in types]
    pattern = _count(text.get("sliding_window_pattern")) or FULL_EVERY.get(text["model_type"])
    if pattern:
        return [bool((layer + 1) % pattern) for layer in range(layers)]
    if text.get("use_sliding_window"):
        first = text.get("max_window_layers")
        return [layer >= (first if isinstance(first, int) else 0) for layer in range(layers)]
    return [True] * layers


def _bytes_per_parameter(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    parts = (text, config)
    dtypes = (part.get(name) for part in parts for name in ("torch_dtype", "dtype"))
    return 4 if next((dtype for dtype in dtypes if dtype), None) == "float32" else KEPT_BYTES
