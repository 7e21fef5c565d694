"""From a Triton model's responses to the documents and events of OpenAI's API. Pure."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from pydantic_core import to_json

from slipway.tasks.serving.openai_api.answers.logprobs import completion_logprobs, read_logprobs, text_of
from slipway.tasks.serving.openai_api.http.errors import ApiError
from slipway.tasks.serving.openai_api.requests.tool_calls import Call, Plain, Reader, reader_of

CANCELLED, STOP, TOOL_CALLS = "cancelled", "stop", "tool_calls"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Piece:
    """One response of a model. `finish_reason` is set in the last one; the counts are those of this response.

    `call_format` says how the model writes calls of tools; None where the request has no tools, or it is not known yet.
    `tools` are the names of those that the request offers.
    """

    text: str
    finish_reason: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    logprobs: tuple[Mapping[str, Any], ...] = ()
    call_format: str | None = None
    tools: frozenset[str] = frozenset()
    thought: str = ""
    """What the model thought before the text; it is no part of the answer."""
    stop_word: str | None = None
    """The stop word that ended the answer; None where none did, or the model does not say it."""


def piece(
    event: Mapping[str, Any],
    call_format: str | None = None,
    tools: frozenset[str] = frozenset(),
    *,
    echoes_tokens: bool = False,
) -> Piece:
    """A response of the generate extension: of Slipway's models, or of Triton's vLLM backend.

    `call_format` counts where the model does not say how it writes calls of `tools`. With `echoes_tokens`, the texts of
    the prompt's tokens are part of the text.
    """
    reason = _first(event.get("finish_reason"))
    of_prompt = read_logprobs(_first(event.get("prompt_logprobs")))
    echo = text_of(of_prompt) if echoes_tokens else ""
    # vLLM's backend writes None until the answer ends
    return Piece(
        echo + str(_first(event.get("text_output")) or ""),
        "" if reason in (None, "None") else str(reason),
        _count(event, "prompt_tokens", "num_input_tokens"),
        _count(event, "completion_tokens", "num_output_tokens"),
        of_prompt + read_logprobs(_first(event.get("logprobs"))),
        _first(event.get("tool_call_format", call_format)),
        tools,
        str(_first(event.get("reasoning_content")) or ""),
        _first(event.get("stop_word")),
    )


def _count(event: Mapping[str, Any], ours: str, vllm: str) -> int | None:
    count = _first(event.get(ours, event.get(vllm)))
    return None if count is None else int(count)


Logprobs = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Thought:
    """A piece of what the model thought before it answered."""

    text: str


Parts = list[str | Call | Thought]


class Form(Protocol):
    """How one route writes the answer to one prompt."""

    prefix: str
    kind: str
    chunk_kind: str

    def whole(self, parts: Parts, finish_reason: str, logprobs: Logprobs) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""

    def first(self) -> dict[str, Any] | None:
        """The choice of a stream's first event, before any text; None where there is none."""

    def part(self, parts: Parts, finish_reason: str | None, logprobs: Logprobs) -> dict[str, Any]:
        """The choice of a stream's event."""


class ChatForm:
    """POST /v1/chat/completions."""

    prefix, kind, chunk_kind = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def __init__(self, index: int) -> None:
        self._index, self._calls = index, 0

    def whole(self, parts: Parts, finish_reason: str, logprobs: Logprobs) -> dict[str, Any]:
        """As Form."""
        calls = [part.document() for part in parts if isinstance(part, Call)]
        text = _text(parts)
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
        message |= {"reasoning_content": thoughts} if (thoughts := _thoughts(parts)) else {}
        message |= {"tool_calls": calls} if calls else {}
        return {
            "index": self._index,
            "message": message,
            "logprobs": _content(logprobs),
            "finish_reason": finish_reason,
        }

    def first(self) -> dict[str, Any]:
        """As Form."""
        delta = {"role": "assistant", "content": ""}
        return {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": None}

    def part(self, parts: Parts, finish_reason: str | None, logprobs: Logprobs) -> dict[str, Any]:
        """As Form. A call comes whole: clients join what they get of each index."""
        calls = [part.document() for part in parts if isinstance(part, Call)]
        delta: dict[str, Any] = {"reasoning_content": thoughts} if (thoughts := _thoughts(parts)) else {}
        delta |= {"content": text} if (text := _text(parts)) else {}
        if calls:
            delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(calls, start=self._calls)]
        self._calls += len(calls)
        return {"index": self._index, "delta": delta, "logprobs": _content(logprobs), "finish_reason": finish_reason}


class CompletionForm:
    """POST /v1/completions."""

    prefix, kind, chunk_kind = "cmpl-", "text_completion", "text_completion"

    def __init__(self, index: int) -> None:
        self._index, self._chars = index, 0

    def whole(self, parts: Parts, finish_reason: str, logprobs: Logprobs) -> dict[str, Any]:
        """As Form."""
        return self.part(parts, finish_reason, logprobs)

    def first(self) -> None:
        """As Form."""

    def part(self, parts: Parts, finish_reason: str | None, logprobs: Logprobs) -> dict[str, Any]:
        """As Form."""
        told = completion_logprobs(logprobs, self._chars) if logprobs else None
        self._chars += len(text_of(logprobs))
        return {"index": self._index, "text": _text(parts), "logprobs": told, "finish_reason": finish_reason}


def _text(parts: Parts) -> str:
    return "".join(part for part in parts if isinstance(part, str))


def _thoughts(parts: Parts) -> str:
    return "".join(part.text for part in parts if isinstance(part, Thought))


def _content(logprobs: Logprobs) -> dict[str, Any] | None:
    return {"content": list(logprobs), "refusal": None} if logprobs else None


@dataclass
class Choice:
    """The answer to one prompt, as it grows.

    Attributes:
        form: how its route writes it.
        reader: tells text and calls of tools apart; None leaves it to what the model says of itself.
        one_call: whether calls of tools behind the first are left out.
        stop_word: the stop word that ended it, where the model says it.
    """

    form: Form
    reader: Reader | None
    one_call: bool
    finish_reason: str = ""
    stop_word: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    _parts: Parts = field(default_factory=list)
    _logprobs: list[Mapping[str, Any]] = field(default_factory=list)
    _has_called: bool = False

    def add(self, new: Piece) -> Parts:
        """Take the next response of the model; text and calls that are certain with it."""
        if self.reader is None:
            self.reader = Plain() if new.call_format is None else reader_of(new.call_format, new.tools)
        parts: Parts = [Thought(new.thought)] if new.thought else []
        parts += self._kept(self.reader.advance(new.text, final=bool(new.finish_reason)))
        if new.finish_reason:
            self.finish_reason = TOOL_CALLS if self._has_called and new.finish_reason == STOP else new.finish_reason
            self.stop_word = new.stop_word
        if new.prompt_tokens is not None:
            self.prompt_tokens = new.prompt_tokens
        if new.completion_tokens is not None:  # vLLM's backend counts each response by itself
            self.completion_tokens = (self.completion_tokens or 0) + new.completion_tokens
        return parts

    def keep(self, new: Piece) -> None:
        """Take the next response for the document."""
        self._parts += self.add(new)
        self._logprobs += new.logprobs

    def document(self) -> dict[str, Any]:
        """The choice of an answer that is not streamed: of the responses that were kept."""
        return self.form.whole(self._parts, self.finish_reason, tuple(self._logprobs))

    def _kept(self, parts: Sequence[str | Call]) -> Parts:
        kept: Parts = []
        for part in parts:
            if not (self.one_call and self._has_called and isinstance(part, Call)):
                kept.append(part)
            self._has_called = self._has_called or isinstance(part, Call)
        return kept


@dataclass
class Answer:
    """What a request is answered with, as it is written: the choices of each of its prompts, one after another.

    Attributes:
        form: makes the form of the choice with an index.
        model: name of the model.
        release: the release that answers, which clients see as the system's fingerprint.
        includes_usage: whether a stream ends with the number of tokens.
        continuous_usage: whether each event has the number of tokens so far.
        one_call: whether a choice has at most one call of a tool.
        answers_per_prompt: how many choices after one another answer the same prompt.
    """

    form: type[ChatForm] | type[CompletionForm]
    model: str
    release: str
    includes_usage: bool = False
    continuous_usage: bool = False
    one_call: bool = False
    answers_per_prompt: int = 1
    _choices: list[Choice] = field(default_factory=list)
    _id: str = field(default_factory=lambda: secrets.token_hex(12))
    _created: int = field(default_factory=lambda: int(time.time()))

    def begin(self, reader: Reader | None = None) -> bytes:
        """Start the next choice; what its stream begins with, empty where that is nothing."""
        self._choices.append(Choice(self.form(len(self._choices)), reader, self.one_call))
        first = self._choices[-1].form.first()
        return b"" if first is None else self._event([first])

    def add(self, new: Piece) -> None:
        """Take the next response to the prompt of the last choice."""
        self._choices[-1].keep(new)

    @property
    def usage(self) -> dict[str, int] | None:
        """Number of tokens of all prompts and answers so far; None where the model has not said it of each."""
        prompts = [choice.prompt_tokens for choice in self._choices[:: self.answers_per_prompt]]
        answers = [choice.completion_tokens for choice in self._choices]
        if None in prompts or None in answers:
            return None
        read, answered = sum(count or 0 for count in prompts), sum(count or 0 for count in answers)
        return {"prompt_tokens": read, "completion_tokens": answered, "total_tokens": read + answered}

    def document(self) -> dict[str, Any]:
        """The answer in one document."""
        choices = [choice.document() for choice in self._choices]
        return {**self._head(self.form.kind), "choices": choices, "usage": self.usage}

    def event(self, new: Piece) -> bytes:
        """Take the next response and write its event; empty where there is nothing to say."""
        choice = self._choices[-1]
        parts = choice.add(new)
        if not parts and not new.finish_reason and not new.logprobs:
            return b""
        return self._event([choice.form.part(parts, choice.finish_reason or None, new.logprobs)])

    def failed(self, error: ApiError) -> bytes:
        """What a stream ends with that breaks off: OpenAI's clients raise an error for such an event."""
        return event(error.body)

    def last_events(self) -> bytes:
        """What a stream ends with."""
        return (self._event([], usage=self.usage) if self.includes_usage else b"") + DONE

    def _event(self, choices: list[dict[str, Any]], **usage: Any) -> bytes:
        counted = {"usage": self.usage if self.continuous_usage else None} if self.includes_usage else {}
        return self._event_head + written({"choices": choices, **counted, **usage})[1:] + b"\n\n"

    @cached_property
    def _event_head(self) -> bytes:
        """What every event of the answer begins with, up to its first own field."""
        return event(self._head(self.form.chunk_kind)).removesuffix(b"}\n\n") + b","

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{self.form.prefix}{self._id}",
            "object": kind,
            "created": self._created,
            "model": self.model,
            "system_fingerprint": self.release,
        }


def event(document: Mapping[str, Any]) -> bytes:
    """One server-sent event. pydantic's writer takes a fifth of the time of json's (docs/decisions/0022)."""
    return b"data: " + written(document) + b"\n\n"


def written(document: Mapping[str, Any]) -> bytes:
    """A document as it is sent. A number that is not finite becomes null: JSON has none."""
    return to_json(document, inf_nan_mode="null")


def _first(value: Any) -> Any:
    """The value of an output tensor, which is a list if it has more than one element."""
    while isinstance(value, list):
        value = value[0] if value else None
    return value
