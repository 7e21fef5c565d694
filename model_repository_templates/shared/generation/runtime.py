"""What an engine must offer to be served: the seam between the scheduler and a vendor's runtime."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Temperature 0 is greedy; without a seed every run of a warmer one differs.

    `adapter` names the LoRA adapter that answers instead of the model itself, or is empty.
    """

    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    adapter: str = ""


@dataclass(frozen=True)
class Progress:
    """What one step did for one request.

    Attributes:
        number: the request, as given to `Runtime.add`.
        tokens: new ids, without the one that stopped it.
        finish_reason: "stop" or "length" when these were the last tokens, else empty.
        failure: why this request alone cannot go on, else empty. Its tokens are not looked at.
    """

    number: int
    tokens: Sequence[int]
    finish_reason: str = ""
    failure: str = ""


Shown = Callable[[Sequence[int]], Sequence[int]]
"""From the new tokens of an answer to those that are part of what a client reads."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one request, without the token that ended the answer, with those that a client does not see."""

    prompt_tokens: int
    completion_tokens: int


class Runtime(Protocol):
    """Continuous batching. Called from one thread; an exception from any method ends the service."""

    def add(self, number: int, prompt: Sequence[int], sampling: Sampling) -> None:
        """Let a request join the running batch. `prompt` is within the model's limits."""

    def step(self) -> Sequence[Progress]:
        """Advance what runs by a token or so. Waits for the engine a short while at most, and never for a request."""

    def cancel(self, number: int) -> None:
        """Free what the request holds; nothing is reported of it any more."""

    def has_work(self) -> bool:
        """Whether `step` has anything to do, be it to free what was cancelled."""


class Tokenizer(Protocol):
    """Text to ids and back. Called from several threads."""

    def encode(self, question: str, template_arguments: Mapping[str, Any] | None = None) -> Sequence[int]:
        """Ids of a user's question as the model was trained to see it, BOS and chat template included.

        Args:
            question: the text.
            template_arguments: arguments of the chat template, which override those that the model is configured with.

        Raises:
            RefusedError: the chat template does not take the question, or there is none for the arguments.
        """

    def shown(self, prompt: Sequence[int]) -> Shown:
        """What keeps those tokens of the answer to a prompt that a client sees. One answer has one of its own."""

    def encode_messages(
        self, messages: Sequence[Mapping[str, Any]], template_arguments: Mapping[str, Any] | None = None
    ) -> Sequence[int]:
        """Ids of a conversation, up to where the model's next answer begins.

        Raises:
            RefusedError: the chat template does not take the messages, or there is none.
        """

    def encode_prompt(self, text: str) -> Sequence[int]:
        """Ids of a text as it is: with the special tokens of any text, without a chat template."""

    def decode(self, sequences: Sequence[Sequence[int]]) -> Sequence[str]:
        """Texts without special tokens; bytes that are no whole character become U+FFFD."""
