"""What the runtimes of llmapi and vllm call the ways to guess tokens, and for which models they have them."""

from typing import Any

from slipway.tasks.contracts.engine.speculation import PromptLookup
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import DRAFT_FOLDER
from slipway.tasks.engines.upstream.tables import table_of

LLMAPI_EAGLE3 = (
    "LlamaForCausalLM",
    "Llama4ForConditionalGeneration",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "GptOssForCausalLM",
)
"""Classes that derive from SpecDecOneEngineForCausalLM in stored copies of NVIDIA/TensorRT-LLM
tensorrt_llm/_torch/models (modeling_llama.py, modeling_qwen3.py, modeling_qwen3_moe.py at 03441af1 and
modeling_gpt_oss.py), and for which docs/source/features/speculative-decoding.md at 04c8822c names heads."""
LLMAPI_MTP = ("deepseek_v3",)
"""The same page: multi-token prediction is supported for DeepSeek only."""

VLLM_EAGLE3 = (
    "LlamaForCausalLM",
    "Llama4ForCausalLM",
    "Llama4ForConditionalGeneration",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "GptOssForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "MiniCPMForCausalLM",
)
"""Models that are SupportsEagle3 (vllm/model_executor/models/) at v0.19.0, v0.22.1 and v0.24.0, and whose type v0.19.0
takes too (vllm/config/speculative.py, aux_hidden_states_supported)."""
VLLM_EAGLE3_LATER = (
    "ApertusForCausalLM",
    "Ernie4_5ForCausalLM",
    "GlmForCausalLM",
    "MiniMaxM2ForCausalLM",
    "Ministral3ForCausalLM",
    "Mistral3ForConditionalGeneration",
    "MistralForCausalLM",
    "NemotronHForCausalLM",
    "Phi3ForCausalLM",
)
"""Those that are SupportsEagle3 at v0.22.1 and v0.24.0, where the type is no longer compared with a list."""
VLLM_WITH_A_LIST = "0.19."
GUESSED_FROM_A_PATH = ("eagle-", "eagle3", "dflash")
"""In a draft's path, each of these makes vLLM take another method than `mtp` or `draft_model`
(SpeculativeConfig.__post_init__)."""


def llm_api_speculation(spec: ReleaseSpec) -> dict[str, Any]:
    """Fields of LLM() that let tokens be guessed; model.py makes a configuration of `speculative_config`.

    The scheduler that overlaps steps is switched off where TensorRT-LLM's own examples do so
    (docs/source/features/speculative-decoding.md at 04c8822c). The draft's path is below the engine's folder.
    """
    speculative = spec.engine.speculative
    if speculative is None:
        return {}
    tokens: dict[str, Any] = {"max_draft_len": speculative.num_tokens}
    draft = {**tokens, "speculative_model_dir": DRAFT_FOLDER}
    match speculative.method:
        case "mtp":
            return {"speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": speculative.num_tokens}}
        case "eagle3":
            return {"speculative_config": {"decoding_type": "Eagle", **draft}}
        case "draft_model":
            fields = {"decoding_type": "DraftTarget", **draft}
        case _:
            assert isinstance(speculative, PromptLookup)
            fields = {"decoding_type": "NGram", **tokens, "max_matching_ngram_size": speculative.lookup_tokens}
    return {"speculative_config": fields, "disable_overlap_scheduler": True}


def vllm_eagle3(version: str) -> tuple[str, ...]:
    """Architectures for which this version of vLLM hands its hidden layers to an EAGLE 3 head."""
    return VLLM_EAGLE3 if version.startswith(VLLM_WITH_A_LIST) else (*VLLM_EAGLE3, *VLLM_EAGLE3_LATER)


def vllm_mtp(version: str) -> tuple[str, ...]:
    """Model types and architectures whose own layers this version of vLLM lets predict further tokens."""
    table = table_of("vllm", version)
    return (*table["mtp"]["model_types"], *table["mtp"]["architectures"]) if table else ()


def vllm_speculation(spec: ReleaseSpec) -> dict[str, Any]:
    """AsyncEngineArgs.speculative_config; empty for none. The template puts the engine's path before the draft's."""
    speculative = spec.engine.speculative
    if speculative is None:
        return {}
    fields: dict[str, Any] = {"method": speculative.method, "num_speculative_tokens": speculative.num_tokens}
    if spec.engine.draft is not None:
        fields["model"] = DRAFT_FOLDER
    if isinstance(speculative, PromptLookup):
        fields |= {"prompt_lookup_max": speculative.lookup_tokens, "prompt_lookup_min": 1}
    return fields
