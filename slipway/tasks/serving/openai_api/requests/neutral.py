"""Values with which a parameter asks for nothing that is not done anyway. Pure.

One table: a parameter passes at its neutral value, whoever invented it, and is refused by its name at any other unless
an engine obeys it. Null is the neutral value of every parameter.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from slipway.tasks.contracts.engine.sampling import NEUTRAL as NEUTRAL_SAMPLING

OPENAI = "OpenAI: platform.openai.com/docs/api-reference, chat/create and completions/create"
VLLM = "vLLM: vllm/entrypoints/openai, ChatCompletionRequest and CompletionRequest"
TENSORRT_LLM = "TensorRT-LLM: tensorrt_llm/serve/openai_protocol.py"
LLAMA_CPP = "llama.cpp: tools/server/README.md"
SGLANG = "SGLang: python/sglang/srt/entrypoints/openai/protocol.py"
OLLAMA = "Ollama: docs/api.md"
LM_STUDIO = "LM Studio: lmstudio.ai/docs, idle TTL and max_tokens"
OPEN_WEBUI = "Open WebUI: github.com/open-webui/open-webui/issues/13617"
SAMPLING = "questions of a gate: slipway/tasks/contracts/engine/sampling.py"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BOTH = frozenset({CHAT, COMPLETIONS})


@dataclass(frozen=True)
class Parameter:
    """A parameter, the values with which it asks for nothing, and where it is described.

    `routes` are those on which the values hold.
    """

    name: str
    values: tuple[Any, ...]
    source: str
    routes: frozenset[str] = BOTH


PARAMETERS: tuple[Parameter, ...] = (
    *(
        Parameter(name, values, SAMPLING)
        for name, values in NEUTRAL_SAMPLING.items()
        if name not in {"temperature", "stop"}  # fields of every request, which need no neutral value
    ),
    Parameter("max_tokens", (-1,), LM_STUDIO, frozenset({CHAT})),
    Parameter("max_completion_tokens", (-1,), LM_STUDIO, frozenset({CHAT})),
    Parameter("n", (1,), OPENAI),
    Parameter("best_of", (1,), OPENAI),
    Parameter("logprobs", (False,), OPENAI, frozenset({CHAT})),
    Parameter("top_logprobs", (0,), OPENAI),
    Parameter("logit_bias", ({},), OPENAI),
    Parameter("response_format", ({"type": "text"},), OPENAI),
    Parameter("modalities", (["text"],), OPENAI),
    Parameter("tools", ([],), OPENAI),
    Parameter("tool_choice", ("none", "auto"), OPENAI),
    Parameter("parallel_tool_calls", (True,), OPENAI),
    Parameter("functions", ([],), OPENAI),
    Parameter("function_call", ("none", "auto"), OPENAI),
    Parameter("store", (False,), OPENAI),
    Parameter("service_tier", ("auto", "default"), OPENAI),
    Parameter("verbosity", ("medium",), OPENAI),
    Parameter("echo", (False,), OPENAI),
    Parameter("suffix", ("",), OPENAI),
    Parameter("min_p", (0,), VLLM),
    Parameter("use_beam_search", (False,), VLLM),
    Parameter("length_penalty", (1,), VLLM),
    Parameter("stop_token_ids", ([],), VLLM),
    Parameter("include_stop_str_in_output", (False,), VLLM),
    Parameter("ignore_eos", (False,), VLLM),
    Parameter("skip_special_tokens", (True,), VLLM),
    Parameter("spaces_between_special_tokens", (True,), VLLM),
    Parameter("include_reasoning", (True,), VLLM),
    Parameter("add_generation_prompt", (True,), VLLM),
    Parameter("continue_final_message", (False,), VLLM),
    Parameter("add_special_tokens", (False,), VLLM, frozenset({CHAT})),
    Parameter("add_special_tokens", (True,), VLLM, frozenset({COMPLETIONS})),
    Parameter("documents", ([],), VLLM),
    Parameter("mm_processor_kwargs", ({},), VLLM),
    Parameter("logits_processors", ([],), VLLM),
    Parameter("return_tokens_as_token_ids", (False,), VLLM),
    Parameter("return_token_ids", (False,), VLLM),
    Parameter("kv_transfer_params", ({},), VLLM),
    Parameter("vllm_xargs", ({},), VLLM),
    Parameter("priority", (0,), VLLM),
    Parameter("max_repetition_pattern_size", (0,), VLLM),
    Parameter("min_repetition_pattern_size", (0,), VLLM),
    Parameter("repetition_min_count", (0,), VLLM),
    Parameter("top_p_min", (0,), TENSORRT_LLM),
    Parameter("prompt_ignore_length", (0,), TENSORRT_LLM),
    Parameter("return_context_logits", (False,), TENSORRT_LLM),
    Parameter("detokenize", (True,), TENSORRT_LLM),
    Parameter("media_io_kwargs", ({},), TENSORRT_LLM),
    Parameter("typical_p", (1,), LLAMA_CPP),
    Parameter("repeat_penalty", (1,), LLAMA_CPP),
    Parameter("mirostat", (0,), LLAMA_CPP),
    Parameter("mirostat_tau", (5,), LLAMA_CPP),
    Parameter("mirostat_eta", (0.1,), LLAMA_CPP),
    Parameter("n_predict", (-1,), LLAMA_CPP),
    Parameter("n_probs", (0,), LLAMA_CPP),
    Parameter("n_keep", (0,), LLAMA_CPP),
    Parameter("id_slot", (-1,), LLAMA_CPP),
    Parameter("samplers", ([],), LLAMA_CPP),
    Parameter("grammar", ("",), LLAMA_CPP),
    Parameter("timings_per_token", (False,), LLAMA_CPP),
    Parameter("return_progress", (False,), LLAMA_CPP),
    Parameter("return_tokens", (False,), LLAMA_CPP),
    Parameter("post_sampling_probs", (False,), LLAMA_CPP),
    Parameter("reasoning_format", ("auto", "deepseek"), LLAMA_CPP),
    Parameter("tfs_z", (1,), LLAMA_CPP),
    Parameter("top_a", (0,), LLAMA_CPP),
    Parameter("penalize_nl", (False,), LLAMA_CPP),
    Parameter("dry_multiplier", (0,), LLAMA_CPP),
    Parameter("xtc_probability", (0,), LLAMA_CPP),
    Parameter("dynatemp_range", (0,), LLAMA_CPP),
    Parameter("separate_reasoning", (True,), SGLANG),
    Parameter("stream_reasoning", (True,), SGLANG),
    Parameter("no_stop_trim", (False,), SGLANG),
    Parameter("return_hidden_states", (False,), SGLANG),
    Parameter("options", ({},), OLLAMA),
    Parameter("tool_servers", ([],), OPEN_WEBUI),
)
WITHOUT_EFFECT: Mapping[str, str] = {
    "user": OPENAI,
    "metadata": OPENAI,
    "safety_identifier": OPENAI,
    "prediction": OPENAI,
    "prompt_cache_key": OPENAI,
    "prompt_cache_options": OPENAI,
    "prompt_cache_retention": OPENAI,
    "request_id": VLLM,
    "cache_prompt": LLAMA_CPP,
    "rid": SGLANG,
    "keep_alive": OLLAMA,
    "ttl": LM_STUDIO,
}
"""Parameters that name the request, hint at its answer, or say how long its prompt or the model may stay: no answer
depends on them."""


def neutral_values(route: str) -> dict[str, tuple[Any, ...]]:
    """Values that ask for nothing, by parameter."""
    return {each.name: each.values for each in PARAMETERS if route in each.routes}


def is_neutral(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether a value asks for nothing. True equals 1, but asks for something else."""
    return value is None or any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values)


def without_nulls(value: Any) -> Any:
    """An object without its members that are null; anything else as it is."""
    return without_neutral(value, {})


def without_neutral(value: Any, values: Mapping[str, tuple[Any, ...]], ignored: Collection[str] = ()) -> Any:
    """An object without its members that ask for nothing, and without those that are ignored."""
    if not isinstance(value, dict):
        return value
    return {
        name: member
        for name, member in value.items()
        if name not in ignored and not is_neutral(member, values.get(name, ()))
    }
