"""Values that a config.json may leave out because they are the defaults of its model type. Pure.

Hugging Face's own repositories leave them out: text_config of google/gemma-3-12b-it has no vocab_size and no head_dim.
tests/local/modelopt compares every row with the classes of transformers 4.57.3, which TensorRT-LLM 1.2.1 requires, and
of 5.14.1: they have the same defaults.
"""

from collections.abc import Mapping
from typing import Any

from slipway.tasks.engines.checkpoint.foreign import COUNTS, PARTS

COLUMNS = (*COUNTS, "tie_word_embeddings")
ROWS: dict[str, tuple[Any, ...]] = {
    "bloom": (2, 64, None, 8, None, None, 250880, None, True),
    "cohere": (40, 8192, 22528, 64, None, None, 256000, 8192, True),
    "cohere2": (40, 8192, 22528, 64, None, None, 256000, 8192, True),
    "deepseek_v2": (32, 4096, 11008, 32, None, None, 32000, 2048, False),
    "deepseek_v3": (61, 7168, 18432, 128, 128, None, 129280, 4096, False),
    "ernie4_5": (18, 1024, 3072, 16, 2, 128, 103424, 131072, True),
    "exaone4": (32, 4096, 16384, 32, 32, None, 102400, 2048, False),
    "falcon": (32, 4544, None, 71, None, None, 65024, 2048, True),
    "gemma": (28, 3072, 24576, 16, 16, 256, 256000, 8192, True),
    "gemma2": (26, 2304, 9216, 8, 4, 256, 256000, 8192, True),
    "gemma3_text": (26, 2304, 9216, 8, 4, 256, 262208, 131072, True),
    "glm": (40, 4096, 13696, 32, 2, 128, 151552, 131072, False),
    "glm4": (40, 4096, 13696, 32, 2, 128, 151552, 131072, False),
    "glm4_moe": (46, 4096, 10944, 96, 8, None, 151552, 131072, False),
    "gpt2": (12, 768, None, 12, None, None, 50257, 1024, True),
    "gpt_bigcode": (12, 768, None, 12, None, None, 50257, 1024, True),
    "gpt_neox": (44, 6144, 24576, 64, None, None, 50432, 2048, False),
    "gpt_oss": (36, 2880, 2880, 64, 8, 64, 201088, 131072, False),
    "gptj": (28, 4096, None, 16, None, None, 50400, 2048, False),
    "granite": (32, 4096, 11008, 32, None, None, 32000, 2048, False),
    "granitemoe": (32, 4096, 11008, 32, None, None, 32000, 2048, False),
    "llama": (32, 4096, 11008, 32, None, None, 32000, 2048, False),
    "llama4_text": (48, 5120, 8192, 40, 8, 128, 202048, 131072, False),
    "ministral3": (34, 4096, 14336, 32, 8, 128, 131072, 262144, False),
    "mistral": (32, 4096, 14336, 32, 8, None, 32000, 131072, False),
    "mixtral": (32, 4096, 14336, 32, 8, None, 32000, 131072, False),
    "nemotron": (32, 6144, 24576, 48, None, None, 256000, 4096, False),
    "olmo": (32, 4096, 11008, 32, None, None, 50304, 2048, False),
    "olmo2": (32, 4096, 11008, 32, None, None, 50304, 2048, False),
    "olmo3": (32, 4096, 11008, 32, None, None, 50304, 2048, False),
    "opt": (12, 768, None, 12, None, None, 50272, 2048, True),
    "phi": (24, 2048, 8192, 32, None, None, 51200, 2048, False),
    "phi3": (32, 3072, 8192, 32, None, None, 32064, 4096, False),
    "phimoe": (32, 4096, 6400, 32, 8, None, 32064, 131072, False),
    "qwen2": (32, 4096, 22016, 32, 32, None, 151936, 32768, False),
    "qwen2_moe": (24, 2048, 5632, 16, 16, None, 151936, 32768, False),
    "qwen2_vl_text": (80, 8192, 29568, 64, 8, None, 152064, 32768, False),
    "qwen2_5_vl_text": (80, 8192, 29568, 64, 8, None, 152064, 32768, False),
    "qwen3": (32, 4096, 22016, 32, 32, 128, 151936, 32768, False),
    "qwen3_moe": (24, 2048, 6144, 32, 4, None, 151936, 32768, False),
    "qwen3_vl_text": (32, 4096, 22016, 32, 32, 128, 151936, 128000, False),
    "seed_oss": (64, 4096, 27648, 80, 8, 128, 155136, 524288, False),
    "smollm3": (36, 2048, 11008, 16, 4, None, 128256, 32768, True),
    "stablelm": (32, 2560, 6912, 32, 32, None, 50304, 4096, False),
    "starcoder2": (30, 3072, 12288, 24, 2, None, 49152, 4096, True),
}
"""Defaults of transformers' configuration classes by model_type, in the order of COLUMNS; None: none, or follows from
another field."""

FURTHER: dict[str, dict[str, Any]] = {
    "cohere2": {"sliding_window": 4096},
    "deepseek_v2": {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "moe_intermediate_size": 1407},
    "deepseek_v3": {
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "moe_intermediate_size": 2048,
        "num_experts_per_tok": 8,
    },
    "exaone4": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "falcon": {"multi_query": True},
    "gemma2": {"sliding_window": 4096},
    "gemma3_text": {"sliding_window": 4096},
    "glm4_moe": {"moe_intermediate_size": 1408, "num_experts_per_tok": 8},
    "gpt_bigcode": {"multi_query": True},
    "gpt_oss": {"sliding_window": 128, "num_experts_per_tok": 4},
    "granitemoe": {"num_experts_per_tok": 2},
    "llama4_text": {"num_experts_per_tok": 1, "intermediate_size_mlp": 16384},
    "mistral": {"sliding_window": 4096},
    "mixtral": {"num_experts_per_tok": 2},
    "olmo3": {"sliding_window": 4096},
    "phimoe": {"num_experts_per_tok": 2},
    "qwen2": {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28},
    "qwen2_moe": {
        "sliding_window": 4096,
        "use_sliding_window": False,
        "max_window_layers": 28,
        "moe_intermediate_size": 1408,
        "num_experts_per_tok": 4,
    },
    "qwen2_vl_text": {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 80},
    "qwen2_5_vl_text": {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 80},
    "qwen3": {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 28},
    "qwen3_moe": {
        "sliding_window": 4096,
        "use_sliding_window": False,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
    },
    "smollm3": {"use_sliding_window": False},
}
"""Defaults that only some types have."""

OLDER_NAMES: dict[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers"),
    "hidden_size": ("n_embd", "d_model"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("n_head_kv", "num_kv_heads", "multi_query_group_num", "num_attention_groups"),
    "head_dim": ("hidden_size_per_head", "kv_channels", "attention_head_dim"),
    "max_position_embeddings": ("n_positions", "max_seq_len"),
    "sliding_window_pattern": ("_sliding_window_pattern",),
}
"""Other names of a field: those of GPT-2, BLOOM, MPT, OPT, Falcon, ChatGLM, Step 3.5 and PLaMo 2, and of Gemma 3 since
transformers 4.54 (vllm/transformers_utils/model_arch_config_convertor.py, get_total_num_kv_heads and get_head_size)."""

TYPE_OF_PART = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "mistral3": "mistral",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_vl": "qwen3_vl_text",
}
"""The model type of a language model that does not name its own, by that of the whole."""


def language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration of the language model: the whole, or the part of one that also sees or hears."""
    if _named(config, "num_hidden_layers") is not None:
        return config
    parts = (config[name] for name in PARTS if isinstance(config.get(name), Mapping))
    return next(parts, config)


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The language model's fields, with one name each and with the defaults of its model type.

    A field that is null stays null: transformers takes that as it is.
    """
    part = language_model(config)
    model_type = str(part.get("model_type") or config.get("model_type"))
    model_type = TYPE_OF_PART.get(model_type, model_type)
    defaults = dict(zip(COLUMNS, ROWS.get(model_type, ()), strict=False)) | FURTHER.get(model_type, {})
    stated = {name: part[_named(part, name) or name] for name in OLDER_NAMES if _named(part, name)}
    return {**_set(defaults), **part, **stated, "model_type": model_type}


def _named(part: Mapping[str, Any], field: str) -> str | None:
    return next((name for name in (field, *OLDER_NAMES.get(field, ())) if name in part), None)


def _set(defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in defaults.items() if value is not None}
