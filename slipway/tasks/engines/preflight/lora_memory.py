"""How much memory LoRA adapters take, on a GPU and in TensorRT-LLM's caches of them. Pure."""

from collections.abc import Collection
from typing import Protocol

from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.lora_modules import MODULES

ELEMENT_BYTES = 2
"""Adapters stay in 16 bits whatever the model's format."""


class Dimensions(Protocol):
    """Sizes of a decoder's linear layers."""

    @property
    def layers(self) -> int:
        """Decoder layers."""

    @property
    def hidden(self) -> int:
        """Elements that go from layer to layer."""

    @property
    def intermediate(self) -> int:
        """Elements inside an MLP."""

    @property
    def heads(self) -> int:
        """Attention heads."""

    @property
    def kv_heads(self) -> int:
        """Heads for keys and values."""

    @property
    def head_dim(self) -> int:
        """Elements of a head."""


def lora_bytes(spec: ReleaseSpec, shape: Dimensions, rank: int) -> int:
    """Bytes that one adapter of the highest rank takes on the fullest GPU, with a matrix pair at every linear layer.

    vLLM splits only a part of it over tensor parallel ranks (vllm/lora/layers/base_linear.py @ 01235a49); it is counted
    whole. TensorRT-LLM's LLM API makes room for all layers on each rank (_torch/pyexecutor/_util.py,
    num_device_module_layer).
    """
    if not rank:
        return 0
    layers = -(-shape.layers // spec.engine.pipeline_parallel)
    support = spec.engine.traits.adapters
    if support is not None and support.pages:
        sizes = module_sizes(shape, MODULES.values(), spec.engine.tensor_parallel)
        page = min(sizes)
        return ELEMENT_BYTES * rank * shape.layers * len(sizes) * page * -(-max(sizes) // page)
    return ELEMENT_BYTES * rank * layers * sum(module_sizes(shape, MODULES.values(), 1))


def module_sizes(shape: Dimensions, modules: Collection[str], tensor_parallel: int) -> list[int]:
    """Elements of one rank of an adapter's two matrices, by module, on one GPU.

    The matrix whose other side the layer splits is whole (cpp/tensorrt_llm/runtime/loraModule.cpp, createLoraModules).
    """
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    split = tensor_parallel
    sizes = {
        "attn_q": shape.hidden + queries // split,
        "attn_k": shape.hidden + max(shape.head_dim, keys // split),
        "attn_v": shape.hidden + max(shape.head_dim, keys // split),
        "attn_dense": queries // split + shape.hidden,
        "mlp_h_to_4h": shape.hidden + shape.intermediate // split,
        "mlp_gate": shape.hidden + shape.intermediate // split,
        "mlp_4h_to_h": shape.intermediate // split + shape.hidden,
    }
    return [sizes[module] for module in modules]


def page_bytes(
    shape: Dimensions, modules: Collection[str], rank: int, tensor_parallel: int, pipeline_parallel: int
) -> int:
    """Bytes of a page that holds one adapter of that rank, in the caches of TensorRT-LLM's C++ runtime.

    A page has rows as wide as the smallest module, and each module takes whole rows
    (cpp/tensorrt_llm/batch_manager/peftCacheManager.cpp, getPageManagerConfig), if optimal and maximum adapter size are
    the rank.
    """
    sizes = module_sizes(shape, modules, tensor_parallel)
    row = min(sizes)
    rows = sum(-(-size // row) for size in sizes)
    return ELEMENT_BYTES * rank * (shape.layers // pipeline_parallel) * rows * row
