"""The model that renders the chat template for an engine that takes texts only: what clients know of it. Pure.

Triton's vLLM backend takes a prompt as it is. A release that was made with it has a second model, `<name>_prompt`,
which makes a prompt of messages or of a question. Clients ask that model first, and then the engine's with the prompt
(docs/decisions/0028-chat-with-vllm.md). Releases made since have one model (docs/decisions/0045).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PARAMETER = "prompt_model"
"""Parameter of the engine's config.pbtxt with the name of the model that renders prompts."""
VLLM_SAMPLING = "sampling_parameters"
"""Input of Triton's vLLM backend with vLLM's SamplingParams as JSON (vllm_backend 11c4e0f, src/utils/request.py)."""


@dataclass(frozen=True)
class ModelInputs:
    """What a client must know of a model before it asks it. `prompt_model` is None where the model takes messages."""

    names: frozenset[str]
    prompt_model: str | None = None


@dataclass(frozen=True)
class Prompt:
    """What the model answers.

    Attributes:
        text: the prompt, without the special tokens that the engine's tokenizer adds.
        tokens: how many tokens the engine's tokenizer makes of it.
        max_tokens: tokens of an answer at most: as requested, or what there is room for.
        call_format: how calls of tools are written; None where the request has no tools.
    """

    text: str
    tokens: int
    max_tokens: int
    call_format: str | None = None


def model_inputs(config: Mapping[str, Any]) -> ModelInputs:
    """The inputs of a document of GET /v2/models/<name>/config.

    Raises:
        TypeError, LookupError, AttributeError: it is another document.
    """
    parameter = (config.get("parameters") or {}).get(PARAMETER) or {}
    names = frozenset(_text(tensor["name"]) for tensor in config.get("input") or ())
    renderer = parameter.get("string_value")
    return ModelInputs(names, None if renderer is None else _text(renderer))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where text belongs")
    return value


def prompt_of(outputs: Mapping[str, Any]) -> Prompt:
    """The prompt from the model's outputs by name; a value may be the only one of a list."""
    values = {name: value[0] if isinstance(value, list) else value for name, value in outputs.items()}
    call_format = values["tool_call_format"]
    return Prompt(
        _text(values["prompt"]),
        int(values["prompt_tokens"]),
        int(values["max_tokens"]),
        None if call_format == "none" else call_format,
    )


def with_prompt(inputs: Mapping[str, Any], prompt: Prompt) -> dict[str, Any]:
    """Inputs of Triton's vLLM backend that are complete but for the prompt."""
    sampling = {**json.loads(inputs[VLLM_SAMPLING]), "max_tokens": prompt.max_tokens}
    return {**inputs, "text_input": prompt.text, VLLM_SAMPLING: json.dumps(sampling, ensure_ascii=False)}
