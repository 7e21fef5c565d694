"""Facts about the LoRA adapters that each runtime serves. EngineTraits.adapters refers to one record per kind.

PEFT's names of layers are those of a model's own: q_proj, gate_proj and so on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj"})
MLP = frozenset({"gate_proj", "up_proj", "down_proj"})

MAX_RANK = 512


@dataclass(frozen=True)
class LoraSupport:
    """What one runtime serves of LoRA adapters."""

    runtime: str
    """Its name in messages."""
    ranks: tuple[int, ...]
    """Ranks that an adapter may have, lowest first."""
    room: tuple[int, ...]
    """Ranks that the runtime can make room for, lowest first; the room has the size of its highest adapter's."""
    layers: Mapping[str, frozenset[str]] | None = None
    """Layers to which it applies an adapter, by architecture; None where it refuses by itself what it cannot apply."""
    formats: frozenset[str] | None = None
    """Weight formats of the model on which it applies adapters; None: every one that the kind serves."""
    guessed_tokens: bool = False
    """Applies adapters also where tokens are guessed ahead (engine.speculative)."""
    pages: bool = False
    """Room for an adapter is a page whose rows are as wide as the widest layer needs (TensorRT-LLM)."""
    whole_stages: bool = False
    """Each pipeline stage must have the same number of layers."""
    quantized_inputs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Layers, by format, whose input is quantized before it reaches them, so that no adapter can be applied to it."""
    stacked_experts: frozenset[str] = frozenset()
    """Architectures in which it applies an adapter to all experts at once, which PEFT calls target_parameters."""
    fixed_because: str = ""
    """Why a running server takes no other adapter, as the end of a sentence; empty where it takes one."""
    quantized_above: int | None = None
    """With these formats and tensor parallelism, all layers of models with a larger hidden size get such inputs."""


VLLM_SIZES = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of `max_lora_rank` (vllm/config/lora.py @ 01230b40, MaxLoRARanks)."""

GEMM_RANKS = (1, 2, 4, *range(8, MAX_RANK + 1, 8))
"""TensorRT-LLM's LoRA kernels read 8, 4, 2 or 1 elements at once, by the lowest rank of a batch: one of 12 would be
read in eights (cpp/tensorrt_llm/kernels/groupGemm.cu @ a57181bb, splitkGroupGemm.cu). No upper limit was found there;
the default of max_lora_rank is 64 (tensorrt_llm/lora_helper.py @ 037d4ba1)."""

VLLM_ADAPTERS = LoraSupport(
    runtime="vLLM",
    ranks=tuple(range(1, MAX_RANK + 1)),
    room=VLLM_SIZES,
    # vllm/config/vllm.py at v0.19.0 asks of the two only that a step has room for the tokens that are guessed
    guessed_tokens=True,
    # Classes with is_3d_moe_weight in vllm/model_executor/models, at v0.24.0 and v0.27.1. In others it fails at the
    # first request or leaves the experts as they are (vllm-project/vllm issue 41754, pull request 47088).
    stacked_experts=frozenset(
        {
            "GptOssForCausalLM",
            "InternS1ProForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
        }
    ),
)

ENGINE_ADAPTERS = LoraSupport(
    runtime="TensorRT-LLM's engine",
    ranks=GEMM_RANKS,
    room=GEMM_RANKS,
    # Classes that pass lora_params on to attention and MLP, and take the default names of layers:
    # tensorrt_llm/models/llama/model.py (use_lora); tensorrt_llm/models/qwen/model.py @ 04a2cacb; LoRA before the norm
    # of queries and keys: tensorrt_llm/layers/attention.py. Not Mixtral: layers/moe.py takes the LoRA of experts for
    # granted where there is any (get_params).
    layers=MappingProxyType(
        {
            "LlamaForCausalLM": ATTENTION | MLP,
            "MistralForCausalLM": ATTENTION | MLP,
            "Qwen2ForCausalLM": ATTENTION | MLP,
            "Qwen3ForCausalLM": ATTENTION | MLP,
        }
    ),
    # Layers that add LoRA: Linear, FP8Linear, WeightOnlyQuantLinear and WeightOnlyGroupwiseQuantLinear
    # (tensorrt_llm/quantization/layers.py). SmoothQuant's refuse it; NVFP4's were not found to take it.
    formats=frozenset({"none", "int8_wo", "int4_wo", "int4_awq", "w4a8_awq", "fp8"}),
    pages=True,
    fixed_because="adapters are converted when the engine is built, and the server reads them when it starts",
    # cpp/tensorrt_llm/runtime/loraCache.cpp @ 063e02f7: the first layer of a stage is its number times its layers
    whole_stages=True,
)

LLMAPI_ADAPTERS = LoraSupport(
    runtime="TensorRT-LLM's LLM API",
    ranks=GEMM_RANKS,
    room=GEMM_RANKS,
    # Classes of tensorrt_llm/_torch/models that hand adapters to their layers: modeling_llama.py (attention and MLP);
    # modeling_mistral.py @ 002f3cc3 (attention: its MLP is called without them); Gemma 3 with q, k and v as
    # tests/unittest/llmapi/test_llm_pytorch.py has it, o_proj being the same linear layer for all models
    # (modules/attention.py). Not Qwen2: GatedMLP asserts a layer_idx, which modeling_qwen.py @ 047098b7 does not give.
    # Not Qwen3: modeling_qwen3.py @ 010bb95f drops the adapters, so the model itself would answer.
    layers=MappingProxyType(
        {
            "LlamaForCausalLM": ATTENTION | MLP,
            "MistralForCausalLM": ATTENTION,
            "Gemma3ForCausalLM": ATTENTION,
        }
    ),
    # docs/source/features/lora.md: quantized models, with FP8 as its example; layers of the AWQ formats scale a copy of
    # their input. Not NVFP4: modeling_llama.py hands layers activations that are already packed (Fp4QuantizedTensor).
    formats=frozenset({"none", "int4_awq", "w4a8_awq", "fp8"}),
    pages=True,
    # lora_target_modules of LoraConfig; the adapter of a request is read with it (tensorrt_llm/_torch/pyexecutor)
    fixed_because="its server is started for the layers that its adapters change, and reads an adapter at the first "
    "request for it, so a damaged one is found by a client",
    # modules/attention.py, _use_quantize_output: attention writes 8 bits where the layer behind it reads 8 bits
    quantized_inputs=MappingProxyType({"fp8": frozenset({"o_proj"})}),
    # modeling_llama.py, LlamaDecoderLayer: RESIDUAL_RMS_NORM_QUANT_FP8 where hidden_size is above this
    quantized_above=4096,
)
