"""A prompt or a conversation and how to answer it, and the inputs that Triton's models get of it. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.wire.prompt_model import VLLM_SAMPLING, Prompt

TEMPLATE_ARGUMENTS, MESSAGES = "chat_template_kwargs", "messages"


@dataclass(frozen=True)
class GenerateRequest:
    """A prompt and how to answer it. Temperature 0 is greedy; a seed makes an answer at another one repeatable.

    `lora` names an adapter that answers instead of the model, if the release has adapters; the server rejects a name
    that it does not know. `chat_template_kwargs` override the chat template's arguments of the release; the server
    rejects them where it applies no template. `history` are messages before the prompt, with role and content.
    """

    prompt: str
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    lora: str | None = None
    chat_template_kwargs: Mapping[str, object] = field(default_factory=dict)
    history: tuple[Mapping[str, str], ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Further parameters (slipway/tasks/contracts/engine/sampling.py); those that change nothing are left out."""

    @property
    def messages(self) -> str:
        """The whole conversation as JSON; empty without a history."""
        turns = [*self.history, {"role": "user", "content": self.prompt}]
        return json.dumps(turns, ensure_ascii=False) if self.history else ""


Column = tuple[str, str, bytes | int | float | bool | tuple[bytes, ...]]
"""Name, type and value of an input. Its shape is [1], or [n] for n texts."""
TEXTS = {"stop": "stop_words", "bad_words": "bad_words"}
"""Inputs of Slipway's models that hold texts, by the parameter."""
NUMBERS = {
    "top_p": "FP32",
    "top_k": "INT32",
    "min_tokens": "INT32",
    "presence_penalty": "FP32",
    "frequency_penalty": "FP32",
    "repetition_penalty": "FP32",
}
"""Types of inputs of Slipway's models that hold a number."""


def columns(request: GenerateRequest, inputs: frozenset[str], *, stream: bool) -> list[Column]:
    """Name, type and value of each input of Slipway's own models, or of Triton's vLLM backend (8de0c14).

    Args:
        request: the request.
        inputs: names of the model's inputs.
        stream: whether the answer comes in pieces.

    Raises:
        InputError: the request names an adapter, or has arguments of a chat template, a history or a parameter, and the
            model has no input for them.
    """
    if request.chat_template_kwargs and TEMPLATE_ARGUMENTS not in inputs:
        raise InputError(
            "arguments of the chat template were sent to a model that takes none",
            found=", ".join(request.chat_template_kwargs),
            expected=f"a model with the input {TEMPLATE_ARGUMENTS}, or one with a model beside it that has it",
            remedy="Leave them out, or release the model again.",
        )
    if request.history and MESSAGES not in inputs:
        raise InputError(
            "a conversation was sent to a model that takes prompts only",
            found=f"{len(request.history)} messages before the prompt",
            expected=f"a model with the input {MESSAGES}, or one with a model beside it that has it",
            remedy="Leave the history out, or release the model again.",
        )
    if VLLM_SAMPLING in inputs:
        return _vllm_columns(request, inputs, stream=stream)
    if request.lora is not None and "lora_name" not in inputs:
        raise InputError(
            f"adapter {request.lora} was requested from a model without LoRA adapters",
            expected="a model that was released with adapters (engine.lora)",
            remedy="Leave the adapter out, or ask a release that has it.",
        )
    values: list[Column] = [
        *_question(request),
        ("max_tokens", "INT32", request.max_tokens),
        ("stream", "BOOL", stream),
        ("temperature", "FP32", request.temperature),
    ]
    # a greedy answer is the same with every seed, which a model that cannot obey one need not know
    if request.seed is not None and (request.temperature > 0 or "seed" in inputs):
        values.append(("seed", "UINT64", request.seed))
    if request.chat_template_kwargs:
        values.append(_template_arguments(request))
    if request.lora is not None:
        values.append(("lora_name", "BYTES", request.lora.encode()))
    values += _sampling(request, inputs)
    return [column for column in values if column[0] != "stream" or "stream" in inputs]


def _sampling(request: GenerateRequest, inputs: frozenset[str]) -> list[Column]:
    unsupported = [name for name in request.sampling if TEXTS.get(name, name) not in inputs]
    if unsupported:
        raise InputError(
            f"the model does not support {', '.join(unsupported)}",
            expected="parameters that its engine kind obeys: docs/openai.md",
            remedy="Remove it, or choose another engine kind.",
        )
    texts = [
        (TEXTS[name], "BYTES", tuple(text.encode() for text in value))
        for name, value in request.sampling.items()
        if name in TEXTS
    ]
    return [*texts, *((name, NUMBERS[name], value) for name, value in request.sampling.items() if name in NUMBERS)]


def prompt_columns(request: GenerateRequest) -> list[Column]:
    """Name, type and value of each input of a model that renders prompts (contracts/wire/prompt_model.py)."""
    values: list[Column] = [*_question(request), ("max_tokens", "INT32", request.max_tokens)]
    if request.chat_template_kwargs:
        values.append(_template_arguments(request))
    if "min_tokens" in request.sampling:
        values.append(("min_tokens", "INT32", request.sampling["min_tokens"]))
    return values


def rendered(request: GenerateRequest, prompt: Prompt) -> GenerateRequest:
    """The request with its prompt in place of what the prompt was made of."""
    return replace(request, prompt=prompt.text, max_tokens=prompt.max_tokens, history=(), chat_template_kwargs={})


def _question(request: GenerateRequest) -> list[Column]:
    if not request.history:
        return [("text_input", "BYTES", request.prompt.encode())]
    return [("text_input", "BYTES", b""), (MESSAGES, "BYTES", request.messages.encode())]


def _template_arguments(request: GenerateRequest) -> Column:
    return TEMPLATE_ARGUMENTS, "BYTES", json.dumps(dict(request.chat_template_kwargs)).encode()


def _vllm_columns(request: GenerateRequest, inputs: frozenset[str], *, stream: bool) -> list[Column]:
    sampling: dict[str, Any] = {"max_tokens": request.max_tokens, "temperature": request.temperature}
    if request.seed is not None:
        sampling["seed"] = request.seed
    if request.lora is not None:
        sampling["lora_name"] = request.lora
    sampling |= request.sampling
    values: list[Column] = [
        ("text_input", "BYTES", request.prompt.encode()),
        ("stream", "BOOL", stream),
        (VLLM_SAMPLING, "BYTES", json.dumps(sampling).encode()),
        ("exclude_input_in_output", "BOOL", True),
        ("return_finish_reason", "BOOL", True),
        ("return_num_input_tokens", "BOOL", True),
    ]
    return [column for column in values if column[0] in inputs]
