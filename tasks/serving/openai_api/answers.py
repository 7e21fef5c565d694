"""From a Triton model's responses to the documents and events of OpenAI's API. Pure."""

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

CANCELLED = "cancelled"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Piece:
    """One response of a model. `finish_reason` is set in the last one; the counts are those of this response."""

    text: str
    finish_reason: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


def piece(event: Mapping[str, Any]) -> Piece:
    """A response of the generate extension: of Slipway's models, or of Triton's vLLM backend."""
    reason = _first(event.get("finish_reason"))
    counts = [
        _first(event.get(ours, event.get(theirs)))
        for ours, theirs in (("prompt_tokens", "num_input_tokens"), ("completion_tokens", "num_output_tokens"))
    ]
    # vLLM's backend writes None until the answer ends
    return Piece(
        str(_first(event.get("text_output")) or ""),
        "" if reason in (None, "None") else str(reason),
        *(None if count is None else int(count) for count in counts),
    )


class Form(Protocol):
    """How one route writes an answer."""

    prefix: str
    kind: str
    chunk_kind: str

    def whole(self, text: str, finish_reason: str) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""

    def first(self) -> dict[str, Any] | None:
        """The choice of a stream's first event, before any text; None where there is none."""

    def part(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        """The choice of a stream's event."""


class ChatForm:
    """POST /v1/chat/completions."""

    prefix, kind, chunk_kind = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def whole(self, text: str, finish_reason: str) -> dict[str, Any]:
        """As Form."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}

    def first(self) -> dict[str, Any]:
        """As Form."""
        delta = {"role": "assistant", "content": ""}
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}

    def part(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        """As Form."""
        delta = {"content": text} if text else {}
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


class CompletionForm:
    """POST /v1/completions."""

    prefix, kind, chunk_kind = "cmpl-", "text_completion", "text_completion"

    def whole(self, text: str, finish_reason: str) -> dict[str, Any]:
        """As Form."""
        return self.part(text, finish_reason)

    def first(self) -> None:
        """As Form."""

    def part(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        """As Form."""
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


@dataclass
class Answer:
    """One answer as it is written.

    Attributes:
        form: how its route writes it.
        model: name of the model.
        release: the release that answers, which clients see as the system's fingerprint.
        includes_usage: whether a stream ends with the number of tokens.
    """

    form: Form
    model: str
    release: str
    includes_usage: bool = False
    finish_reason: str = ""
    _texts: list[str] = field(default_factory=list)
    _prompt_tokens: int | None = None
    _completion_tokens: int | None = None
    _id: str = field(default_factory=lambda: secrets.token_hex(12))
    _created: int = field(default_factory=lambda: int(time.time()))

    def add(self, new: Piece) -> None:
        """Take the next response of the model."""
        self._texts.append(new.text)
        self.finish_reason = new.finish_reason or self.finish_reason
        if new.prompt_tokens is not None:
            self._prompt_tokens = new.prompt_tokens
        if new.completion_tokens is not None:  # vLLM's backend counts each response by itself
            self._completion_tokens = (self._completion_tokens or 0) + new.completion_tokens

    @property
    def usage(self) -> dict[str, int] | None:
        """Number of tokens, where the model gave it."""
        if self._prompt_tokens is None or self._completion_tokens is None:
            return None
        total = self._prompt_tokens + self._completion_tokens
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._completion_tokens,
            "total_tokens": total,
        }

    def document(self) -> dict[str, Any]:
        """The answer in one document."""
        choice = self.form.whole("".join(self._texts), self.finish_reason)
        return {**self._head(self.form.kind), "choices": [choice], "usage": self.usage}

    def first_event(self) -> bytes:
        """What a stream begins with."""
        choice = self.form.first()
        return b"" if choice is None else self._event([choice])

    def event(self, new: Piece) -> bytes:
        """The event of a response; empty where there is nothing to say."""
        if not new.text and not new.finish_reason:
            return b""
        return self._event([self.form.part(new.text, new.finish_reason or None)])

    def last_events(self) -> bytes:
        """What a stream ends with."""
        return (self._event([], usage=self.usage) if self.includes_usage else b"") + DONE

    def _event(self, choices: list[dict[str, Any]], **usage: Any) -> bytes:
        empty = {"usage": None} if self.includes_usage else {}
        return event({**self._head(self.form.chunk_kind), "choices": choices, **empty, **usage})

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{self.form.prefix}{self._id}",
            "object": kind,
            "created": self._created,
            "model": self.model,
            "system_fingerprint": self.release,
        }


def event(document: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _first(value: Any) -> Any:
    """The value of an output tensor, which is a list if it has more than one element."""
    while isinstance(value, list):
        value = value[0] if value else None
    return value
