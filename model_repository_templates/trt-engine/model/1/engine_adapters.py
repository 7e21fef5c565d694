"""LoRA adapters as TensorRT-LLM's Triton backend takes them: a number, and weights where its cache does not have them.

Inputs: NVIDIA/TensorRT-LLM, triton_backend/inflight_batcher_llm/src/utils.cc (getLoraConfigFromTensors). The cache is
the engine's own, and another adapter may take an adapter's place in it; only its error tells.
"""

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from generation.requests.adapters import Adapter

NOT_CACHED = "not found in cache"
"""Part of the error: cpp/tensorrt_llm/batch_manager/peftCacheManager.cpp, addRequestPeft."""

WEIGHTS, CONFIG = "model.lora_weights.npy", "model.lora_config.npy"


def identity(adapter: Adapter) -> list[Any]:
    """Inputs that name the adapter to an engine that has it."""
    return [pb_utils.Tensor("lora_task_id", np.array([[adapter.number]], dtype=np.uint64))]


def with_weights(adapter: Adapter) -> list[Any]:
    """Inputs that also give the engine the adapter's weights."""
    config = pb_utils.Tensor("lora_config", np.load(adapter.folder / CONFIG))
    return [*identity(adapter), _weights(adapter.folder / WEIGHTS), config]


def is_missing(error: Any) -> bool:
    """Whether the engine answered that it does not have the adapter's weights."""
    return error is not None and NOT_CACHED in error.message()


def _weights(file: Path) -> Any:
    """NumPy has no bfloat16: the file holds two bytes an element, which reach Triton by way of DLPack."""
    weights = np.load(file)
    if weights.dtype.kind != "V":
        return pb_utils.Tensor("lora_weights", weights)
    import torch

    return pb_utils.Tensor.from_dlpack("lora_weights", torch.from_numpy(weights.view(np.int16)).view(torch.bfloat16))
