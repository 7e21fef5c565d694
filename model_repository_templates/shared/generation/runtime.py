"""What an engine must offer to be served: the seam between the scheduler and a vendor's runtime."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from generation.model_files.channels import Thinking


@dataclass(frozen=True)
class Controls:
    """What narrows or shifts the choice of tokens. The defaults change nothing.

    Meanings are those of vLLM's SamplingParams, ranges those of OpenAI's API where it has the parameter.

    Attributes:
        top_p: the likeliest tokens that have this probability together are left, above 0 and at most 1.
        top_k: this many of the likeliest tokens are left; 0 leaves all.
        min_tokens: the answer does not end before it has so many tokens.
        presence_penalty: taken off the logits of tokens that the answer has, -2 to 2.
        frequency_penalty: the same, times how often the answer has the token, -2 to 2.
        repetition_penalty: divides positive logits of tokens of prompt and answer, multiplies negative ones; above 0.
        bad_words: texts that the answer does not contain.
        logprobs: how many of the likeliest tokens are reported with each token's log-probability; None reports none.
        grammar: grammar that the answer obeys, in the EBNF of xgrammar, or empty.
        min_p: tokens are left that have this share of the likeliest one's probability, 0 to 1.
        ignore_eos: no token of the model's ends the answer.
        logit_bias: tokens, each with what is added to its logit, -100 to 100.
        prompt_logprobs: how many of the likeliest tokens are reported with the log-probability of each token of the
            prompt; None reports none.
    """

    top_p: float = 1.0
    top_k: int = 0
    min_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    bad_words: tuple[str, ...] = ()
    logprobs: int | None = None
    grammar: str = ""
    min_p: float = 0.0
    ignore_eos: bool = False
    logit_bias: tuple[tuple[int, float], ...] = ()
    prompt_logprobs: int | None = None


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Temperature 0 is greedy; without a seed every run of a warmer one differs.

    `adapter` names the LoRA adapter that answers instead of the model itself, or is empty.
    """

    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    adapter: str = ""
    thinks: bool = False
    """Whether the answer may begin with thoughts, which are told apart from it."""
    controls: Controls = field(default_factory=Controls)


@dataclass(frozen=True)
class TokenLogprob:
    """The natural logarithm of a token's probability; `alternatives` are the likeliest tokens there, best first.

    A prompt's first token has none: nothing is before it.
    """

    token: int
    logprob: float | None
    alternatives: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class Progress:
    """What one step did for one request.

    Attributes:
        number: the request, as given to `Runtime.add`.
        tokens: new ids, without the one that stopped it.
        finish_reason: "stop" or "length" when these were the last tokens, else empty.
        failure: why this request alone cannot go on, else empty. Its tokens are not looked at.
        logprobs: one for each of `tokens` where the request asked for them, else empty.
        prompt_logprobs: with the first step, one for each token of the prompt where the request asked for them.
    """

    number: int
    tokens: Sequence[int]
    finish_reason: str = ""
    failure: str = ""
    logprobs: Sequence[TokenLogprob] = ()
    prompt_logprobs: Sequence[TokenLogprob] = ()


class Parts(NamedTuple):
    """Tokens by what they are part of; those of neither, such as marks between them, are left out."""

    answer: list[int]
    thought: list[int]


Split = Callable[[Sequence[int]], Parts]
"""From the new tokens of one request to the parts that a client reads."""


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


class Grammars(Protocol):
    """Tells which JSON Schemas the engine can compile. Called from several threads."""

    def knows(self, schema: str) -> bool:
        """Whether `check` answers at once."""

    def check(self, schema: str) -> None:
        """Have a schema compiled outside of the engine.

        Raises:
            RefusedError: that fails, or takes too long.
        """


class Tokenizer(Protocol):
    """Text to ids and back. Called from several threads."""

    @property
    def tool_call_format(self) -> str:
        """How the model writes calls of tools, by its chat template: model_files/tool_calls.py. Empty if not known."""

    @property
    def thinking(self) -> "Thinking | None":
        """What begins and ends a thought; None where the model has channels or no such marks."""

    @property
    def longest_token(self) -> int | None:
        """Bytes of the longest text that one token may stand for; None where that may be any text."""

    @property
    def vocabulary_size(self) -> int:
        """Every id of a token is below it."""

    def encode(self, question: str, template_arguments: Mapping[str, Any] | None = None) -> Sequence[int]:
        """Ids of a user's question as the model was trained to see it, BOS and chat template included.

        Args:
            question: the text.
            template_arguments: arguments of the chat template, which override those that the model is configured with.

        Raises:
            RefusedError: the chat template does not take the question, or there is none for the arguments.
        """

    def split(self, prompt: Sequence[int], *, thinks: bool) -> Split:
        """What tells answer and thoughts apart in what follows a prompt. One answer has one of its own.

        Without `thinks`, marks of thoughts are text like any other.
        """

    def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_arguments: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[int]:
        """Ids of a conversation, up to where the model's next answer begins.

        Args:
            messages: each has a role and a text.
            template_arguments: arguments of the chat template, which override those that the model is configured with.
            tools: definitions of the functions that the model may call, as OpenAI's API writes them.

        Raises:
            RefusedError: the chat template does not take the messages or ignores the tools, or there is none.
        """

    def encode_prompt(self, text: str) -> Sequence[int]:
        """Ids of a text as it is: with the special tokens of any text, without a chat template."""

    def decode(self, sequences: Sequence[Sequence[int]]) -> Sequence[str]:
        """Texts without special tokens; bytes that are no whole character become U+FFFD."""
