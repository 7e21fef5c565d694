"""TensorRT-LLM's names of the linear layers that LoRA adapters change. Pure."""

from collections.abc import Collection

MODULES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_dense",
    "gate_proj": "mlp_h_to_4h",
    "up_proj": "mlp_gate",
    "down_proj": "mlp_4h_to_h",
}
"""By PEFT's names: tensorrt_llm/lora_helper.py @ 037d4ba1, get_default_trtllm_modules_to_hf_modules."""

TOGETHER = (("attn_q", "attn_k", "attn_v"), ("mlp_h_to_4h", "mlp_gate"))
"""Modules that are served together or not at all: the first in lora_helper.py
(get_missing_qkv_modules_from_lora_modules), the second in tensorrt_llm/layers/mlp.py (fc_gate_lora), which ignores an
adapter of only one."""


def modules_of(layers: Collection[str]) -> list[str]:
    """TensorRT-LLM's modules for adapters of these layers, in its order; an adapter need not change all of them."""
    named = {MODULES[layer] for layer in layers}
    for group in TOGETHER:
        named |= set(group) if named & set(group) else set()
    return [module for module in MODULES.values() if module in named]
