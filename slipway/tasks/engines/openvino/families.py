"""Which models optimum-intel traces to OpenVINO IR with the transformers of the tasks environment. Pure.

Both lists are compared with optimum-intel's own registry in tests/local/families; docs/models.md shows what was run.
"""

from collections.abc import Mapping
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.preflight.model_shape import shape_of

TRACED = frozenset(
    {
        *("afmoe", "arcee", "biogpt", "bloom", "codegen", "cohere", "cohere2", "falcon", "glm4", "gpt2", "gpt_bigcode"),
        *("gpt_neo", "gpt_neox", "gpt_neox_japanese", "gpt_oss", "gptj", "granite", "granitemoe", "granitemoehybrid"),
        *("hunyuan_v1_dense", "llama", "mistral", "mixtral", "mpt", "olmo", "olmo2", "opt", "persimmon", "phi", "phi3"),
        *("phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "stablelm", "starcoder2", "xglm"),
    }
)
"""Values of model_type that optimum-intel 2.2.0 traces as decoders with transformers 5.5."""

LIMIT_LIFTED = frozenset({"gemma", "gemma2", "gemma3_text"})
"""Types that optimum-intel 2.2.0 limits to transformers 5.0; 5.5 traces them correctly (docs/decisions/0024)."""

NEEDS_OLDER: Mapping[str, str] = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), "4.53.3"),
    **dict.fromkeys(("bitnet", "dbrx", "exaone4", "llama4", "llama4_text", "qwen3_next", "zamba2"), "4.57.6"),
    **dict.fromkeys(("gemma3n_text", "glm"), "5.0"),
    **dict.fromkeys(("qwen3_5_moe_text", "qwen3_5_text"), "5.2.99"),
    **dict.fromkeys(("falcon_mamba", "mamba"), "5.3.0"),
    **dict.fromkeys(("lfm2", "lfm2_moe"), "5.4.0"),
}
"""The newest transformers with which optimum-intel 2.2.0 traces a type, where that is older than the one here."""


def check_traced(config: Mapping[str, Any], what: str) -> None:
    """Refuse a model that quantize could not trace, hours after the download.

    Args:
        config: config.json of the source.
        what: the source, for the message.

    Raises:
        InputError: the model_type, and why optimum-intel does not trace it.
    """
    model_type = config.get("model_type")
    if model_type in TRACED or model_type in LIMIT_LIFTED:
        return
    newest = NEEDS_OLDER.get(str(model_type))
    raise InputError(
        f"openvino cannot serve {what}: its architecture cannot be exported",
        found=f"model_type {model_type}"
        + (f", which optimum-intel exports with transformers up to {newest} only" if newest else ""),
        expected=f"one of {', '.join(sorted(TRACED | LIMIT_LIFTED))}",
        remedy="Choose a model of one of these types, or engine kind llmapi or vllm on a GPU.",
    )


def check_stateless(config: Mapping[str, Any], what: str) -> None:
    """Refuse a model with layers that keep a state, which continuous batching does not carry from token to token.

    Its answers are wrong from the second token on, and no step would notice (openvino.genai issue 4251).

    Raises:
        InputError: the model's type.
    """
    shape = shape_of(config)
    if shape is not None and shape.hybrid:
        raise InputError(
            f"openvino answers wrongly for {what}: continuous batching loses the state of some of its layers",
            found=f"model_type {config.get('model_type')} with {sum(not each for each in shape.caches)} such layers of "
            f"{shape.layers}",
            expected="attention in every layer",
            remedy="Choose engine kind vllm on a GPU, or a model with attention alone.",
        )
