"""What a client asks, checked against the model's limits. Computes only."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from generation.runtime import Controls, Sampling
from generation.settings import Limits

LEAST_TEMPERATURE = 1e-5
"""Below it an answer is greedy, as in vLLM (_SAMPLING_EPS of sampling_params.py): engines divide logits by the
temperature in 32 bits, and infinite ones end a GPU's sampler or choose any token."""


class RefusedError(Exception):
    """The request cannot be served as it is; the text tells the client what to change."""


@dataclass(frozen=True)
class Question:
    """A request's inputs; None where the client gave none."""

    text: str
    max_tokens: int | None = None
    stream: bool = False
    temperature: float = 0.0
    seed: int | None = None
    stop_words: tuple[str, ...] = ()
    template_arguments: Mapping[str, Any] = field(default_factory=dict)
    lora_name: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    apply_chat_template: bool | None = None
    controls: Controls = field(default_factory=Controls)
    tools: tuple[Mapping[str, Any], ...] = ()
    prompt_ids: tuple[int, ...] = ()
    """A prompt that the client has tokenized itself."""


@dataclass(frozen=True)
class Job:
    """A question that the engine may take."""

    prompt: tuple[int, ...]
    sampling: Sampling
    stream: bool
    stop_words: tuple[str, ...] = ()


def check(question: Question, limits: Limits, longest_token: int | None) -> None:
    """Refuse what is wrong before any work is done on it.

    Args:
        question: the request.
        limits: those of the model.
        longest_token: bytes of the longest text that one token may stand for; None where that may be any text.

    Raises:
        RefusedError: more text than the longest tokens could hold, empty text or stop word, more than one of text,
            messages and tokens, tools without messages, a schema with ignore_eos, max_tokens below 1, or a temperature
            that is negative, not a number or above the limit.
    """
    size = _bytes(question)
    if longest_token is not None and size > limits.max_input_tokens * longest_token:
        raise RefusedError(
            f"the prompt is {size} bytes long; this model takes at most {limits.max_input_tokens} tokens, of at most "
            f"{longest_token} bytes each. Shorten the text, or release it with a larger engine.max_input_tokens."
        )
    if question.messages and question.text:
        raise RefusedError("text_input and messages are both given; expected one. Leave text_input empty.")
    if question.prompt_ids and (question.messages or question.text or question.template_arguments):
        raise RefusedError(
            "prompt_ids are given with text_input, messages or chat_template_kwargs; expected the tokens alone. Leave "
            "text_input empty and the others out."
        )
    if not question.messages and not question.prompt_ids and not question.text.strip():
        raise RefusedError("the prompt is empty; expected a question. Send some text.")
    if question.max_tokens is not None and question.max_tokens < 1:
        raise RefusedError(f"max_tokens is {question.max_tokens}; expected at least 1. Raise it or leave it out.")
    if not (math.isfinite(question.temperature) and question.temperature >= 0):
        raise RefusedError(
            f"temperature is {question.temperature}; expected 0 (greedy) or a positive number. "
            "Change it or leave it out."
        )
    if question.temperature > limits.max_temperature:
        raise RefusedError(
            f"temperature is {question.temperature:g}; this model takes at most {limits.max_temperature:g}. Lower it."
        )
    if "" in question.stop_words:
        raise RefusedError("stop_words has an empty text; expected texts that end an answer. Leave it out.")
    _check_pairs(question)


def _check_pairs(question: Question) -> None:
    if question.controls.ignore_eos and question.controls.grammar:
        raise RefusedError(
            "ignore_eos and json_schema exclude one another: an answer ends with its JSON. Leave one out."
        )
    if question.tools and not question.messages:
        raise RefusedError("tools need messages: they are part of a conversation. Send messages, or leave tools out.")


def _bytes(question: Question) -> int:
    """Bytes of text that may get into the prompt."""
    said = [message["content"] + message.get("reasoning_content", "") for message in question.messages]
    return len(question.text.encode()) + sum(len(text.encode()) for text in said)


def job(question: Question, prompt: Sequence[int], limits: Limits) -> Job:
    """The question with its tokens, nothing cut off.

    Without `max_tokens` the answer may be as long as the model's own default and the room behind the prompt allow.

    Raises:
        RefusedError: the prompt, or prompt and answer together, are longer than the model takes; or min_tokens is more
            than the answer has room for.
    """
    if len(prompt) > limits.max_input_tokens:
        raise RefusedError(
            f"the prompt is {len(prompt)} tokens long, chat template included; this model takes at most "
            f"{limits.max_input_tokens}. Shorten the text, or release it with a larger engine.max_input_tokens."
        )
    room = limits.max_sequence_tokens - len(prompt)
    max_tokens = min(room, limits.default_max_tokens) if question.max_tokens is None else question.max_tokens
    if max_tokens > room:
        raise RefusedError(
            f"prompt and max_tokens together are {len(prompt)} + {max_tokens} tokens; this model holds "
            f"{limits.max_sequence_tokens}. Ask for at most {room} tokens, or shorten the text."
        )
    if question.controls.min_tokens > max_tokens:
        raise RefusedError(
            f"min_tokens is {question.controls.min_tokens}; the answer has at most {max_tokens} tokens. Lower it."
        )
    adapter, is_templated = question.lora_name or "", question.apply_chat_template is not False
    thinks = is_templated and not question.prompt_ids  # a prompt that the client wrote itself is continued as it is
    temperature = question.temperature if question.temperature >= LEAST_TEMPERATURE else 0.0
    sampling = Sampling(max_tokens, temperature, question.seed, adapter, thinks, question.controls)
    return Job(tuple(prompt), sampling, question.stream, question.stop_words)
