"""The inputs of a Triton model for a prompt or a conversation, and refusals of what the model cannot do. Pure.

A model's configuration names its inputs, so an option that an engine kind or an older release does not support is
refused before anything is sent.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.wire.prompt_model import VLLM_SAMPLING, ModelInputs

Message = Mapping[str, Any]
"""A role and a text, under `role` and `content`."""

VLLM_SWITCHES = (
    "exclude_input_in_output",
    "return_finish_reason",
    "return_num_input_tokens",
    "return_num_output_tokens",
)
MESSAGES, LORA, TEMPLATE_ARGUMENTS, STOP_WORDS = "messages", "lora_name", "chat_template_kwargs", "stop_words"
OPTIONS = {
    "max_tokens": "--max-tokens",
    "temperature": "--temperature",
    "seed": "--seed",
    "top_p": "--top-p",
    STOP_WORDS: "--stop",
    TEMPLATE_ARGUMENTS: "--chat-template-kwargs",
    LORA: "--lora",
}
"""The option that sets each input."""


@dataclass(frozen=True)
class Sampling:
    """How an answer is generated. None leaves a choice to the model.

    Attributes:
        max_tokens: tokens of the answer at most.
        temperature: 0 chooses the most probable token each time.
        seed: makes an answer at another temperature repeatable.
        top_p: share of the probability that tokens are chosen from, above 0 and up to 1.
        stop: texts that end the answer and are not part of it.
        chat_template_kwargs: override the chat template's arguments of the release.
        lora: adapter that answers in place of the model.
    """

    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    top_p: float | None = None
    stop: Sequence[str] = ()
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    lora: str | None = None

    def inputs(self) -> dict[str, Any]:
        """What was set, by the name of its input."""
        arguments = dict(self.chat_template_kwargs)
        values: dict[str, Any] = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "top_p": self.top_p,
            STOP_WORDS: list(self.stop) or None,
            TEMPLATE_ARGUMENTS: json.dumps(arguments) if arguments else None,
            LORA: self.lora,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Body:
    """Inputs of a model, and before that of the model that renders its prompt, if there is one."""

    inputs: Message
    to_render: Message | None = None


def check_takes_messages(model: str, model_inputs: ModelInputs) -> None:
    """Refuse a conversation with a model that takes no messages.

    Raises:
        InputError: it takes none, and no other model renders its prompts.
    """
    if MESSAGES not in model_inputs.names and model_inputs.prompt_model is None:
        raise InputError(
            f"{model} takes no messages, so it has no conversations and no system prompt",
            found=f"a model with the inputs {', '.join(sorted(model_inputs.names))}",
            expected="an input `messages`, or a model beside it that renders messages",
            remedy=f'Send single prompts, as in `slipway ask {model} "question"`. If the release is older than '
            "conversations, release the model again.",
        )


def prompt_inputs(model: str, prompt: str | Sequence[Message], sampling: Sampling, model_inputs: ModelInputs) -> Body:
    """The bodies of requests to the generate extension.

    Args:
        model: name of the model, for errors.
        prompt: one prompt, or the messages of a conversation.
        sampling: how to answer.
        model_inputs: the model's inputs.

    Raises:
        InputError: the model cannot do something that was requested. The error names every such option.
    """
    if not isinstance(prompt, str):
        check_takes_messages(model, model_inputs)
    names, options = model_inputs.names, sampling.inputs()
    question = {"text_input": prompt} if isinstance(prompt, str) else {"text_input": "", MESSAGES: json.dumps(prompt)}
    if VLLM_SAMPLING not in names:
        _refuse(model, [name for name in options if name not in names])
        stream = {"stream": True} if "stream" in names else {}
        return Body({**question, **stream, **options})
    template = {name: options.pop(name) for name in (TEMPLATE_ARGUMENTS,) if name in options}
    if model_inputs.prompt_model is None:
        _refuse(model, list(template))
        return Body({**question, **_vllm_inputs(options, names)})
    return Body(_vllm_inputs(options, names), {**question, **template, "max_tokens": sampling.max_tokens})


def _vllm_inputs(options: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    sampling = {"stop" if name == STOP_WORDS else name: value for name, value in options.items()}
    switches = {name: True for name in ("stream", *VLLM_SWITCHES) if name in names}
    return {VLLM_SAMPLING: json.dumps(sampling), **switches}


def _refuse(model: str, unsupported: Sequence[str]) -> None:
    if unsupported:
        options = ", ".join(OPTIONS[name] for name in unsupported)
        raise InputError(
            f"{model} does not support {options}",
            found=f"no input {', '.join(unsupported)} in the model's configuration",
            remedy="Leave it out, or release the model with an engine kind that supports it."
            + (" The model has no adapters: engine.lora of the spec lists them." if LORA in unsupported else ""),
        )
