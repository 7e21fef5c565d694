"""Sets the runtimes' arguments that make room for LoRA adapters."""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.preflight.loras import max_rank, support_of
from slipway.tasks.engines.preflight.memory_fit import lora_slots


def vllm_arguments(spec: ReleaseSpec, ranks: Mapping[str, int]) -> dict[str, Any]:
    """Fields of vLLM's AsyncEngineArgs that make room for adapters; empty without any.

    All of them stay in the host's memory; `max_loras` of them are on the GPU at once. Where adapters are added to the
    live model, the host has room for those of a change beside those that it replaces; vLLM drops the one that was not
    used for longest (vllm/lora/model_manager.py, LRUCacheLoRAModelManager).
    """
    room = spec.engine.room_rank
    if not (ranks or room):
        return {}
    return {
        "enable_lora": True,
        "max_loras": lora_slots(spec),
        "max_cpu_loras": 2 * spec.engine.room if room else len(ranks),
        "max_lora_rank": max_rank((*ranks.values(), room), support_of(spec)),
    }


def llm_api_arguments(spec: ReleaseSpec, ranks: Mapping[str, int], modules: Sequence[str]) -> dict[str, Any]:
    """Fields of TensorRT-LLM's LLM() that make room for adapters; empty without any.

    No lora_dir: with exactly one, the modules of that adapter alone would be served (_torch/pyexecutor/_util.py). A
    page of the cache holds one adapter of the highest rank: with smaller pages, ranks that do not fill them leave room
    unused, and the last adapter finds none (cpp/tensorrt_llm/runtime/loraCache.cpp, determineNumPages). CUDA graphs are
    off: upstream's own tests of adapters set them to None until a fix, and which release has it is not known
    (tests/unittest/llmapi/test_llm_pytorch.py).

    Args:
        spec: the release's spec.
        ranks: each adapter's rank, by name.
        modules: TensorRT-LLM's names of the layers that they change together.
    """
    if not ranks:
        return {}
    highest = max_rank(ranks.values(), support_of(spec))
    return {
        "lora_config": {
            "lora_target_modules": list(modules),
            "max_lora_rank": highest,
            "max_loras": lora_slots(spec),
            "max_cpu_loras": len(ranks),
        },
        "peft_cache_config": {"optimal_adapter_size": highest, "max_adapter_size": highest},
        "cuda_graph_config": None,
    }
