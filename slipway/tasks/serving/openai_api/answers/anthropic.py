"""From a Triton model's responses to the documents, events and errors of Anthropic's /v1/messages. Pure."""

import json
import secrets
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from slipway.tasks.contracts.wire.bounded_json import BoundsError
from slipway.tasks.serving.openai_api.answers.openai import STOP, ChatForm, Choice, Parts, Piece, Thought, written
from slipway.tasks.serving.openai_api.http.errors import CONTEXT_LENGTH, ApiError
from slipway.tasks.serving.openai_api.requests.messages import read_arguments
from slipway.tasks.serving.openai_api.requests.tool_calls import Call, Reader

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
TYPES = {
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.INTERNAL_SERVER_ERROR: "api_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
}
"""Anthropic's names of errors, by status."""
OF_BLOCKS: Mapping[str, Mapping[str, str]] = {"text": {}, "thinking": {"signature": ""}}
"""Further fields of blocks that grow. A signature is for whoever served the model, which here looks at none."""
TOO_LONG = "prompt is too long"
"""How Anthropic's own refusal begins: clients shorten the conversation when they read it."""


def error_document(error: ApiError, request_id: str) -> dict[str, Any]:
    """An error as Anthropic's clients expect it. It has no field for the parameter, so that the text names it."""
    kind, text = TYPES.get(HTTPStatus(error.status), "invalid_request_error"), error.message
    if error.code == CONTEXT_LENGTH and error.param == "messages":
        text = f"{TOO_LONG}: {text}"
    elif error.param and error.param not in text:
        text = f"{error.param}: {text}"
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": request_id}


class MessageAnswer:
    """One answer, as it is written: blocks of thoughts, text and calls, in the order in which the model made them."""

    def __init__(self, model: str, request_id: str, *, one_call: bool = False, thinks: bool = False) -> None:
        """`thinks`: the client wants the thoughts."""
        self._model, self._request_id, self._one_call, self._thinks = model, request_id, one_call, thinks
        self._choice = Choice(ChatForm(0), None, one_call)
        self._blocks: list[dict[str, Any]] = []
        self._is_open = False
        self._id = f"msg_{secrets.token_hex(12)}"

    def begin(self, reader: Reader | None = None) -> bytes:
        """Start the answer; what its stream begins with. The number of the prompt's tokens is known later."""
        self._choice = Choice(ChatForm(0), reader, self._one_call)
        message = {**self._message(), "stop_reason": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
        return _event("message_start", message=message)

    def add(self, new: Piece) -> None:
        """Take the next response of the model."""
        self.event(new)

    def event(self, new: Piece) -> bytes:
        """Take the next response and write its events."""
        events = b"".join(self._events_of(self._choice.add(new)))
        return events + (self._close() if new.finish_reason else b"")

    def last_events(self) -> bytes:
        """What a stream ends with."""
        delta = {"stop_reason": self._stop_reason, "stop_sequence": self._stop_sequence}
        return _event("message_delta", delta=delta, usage=self._usage()) + _event("message_stop")

    def failed(self, error: ApiError) -> bytes:
        """What a stream ends with that breaks off."""
        document = error_document(error, self._request_id)
        return _event("error", error=document["error"], request_id=self._request_id)

    def document(self) -> dict[str, Any]:
        """The answer in one document."""
        return self._message()

    def _message(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": self._blocks,
            "stop_reason": self._stop_reason,
            "stop_sequence": self._stop_sequence,
            "usage": self._usage(),
        }

    @property
    def _stop_sequence(self) -> str | None:
        """The stop sequence that ended the answer. Calls of tools before it are what the client is to look at."""
        return self._choice.stop_word if self._choice.finish_reason == STOP else None

    @property
    def _stop_reason(self) -> str:
        if self._stop_sequence is not None:
            return "stop_sequence"
        return STOP_REASONS.get(self._choice.finish_reason, self._choice.finish_reason)

    def _usage(self) -> dict[str, Any]:
        return {"input_tokens": self._choice.prompt_tokens, "output_tokens": self._choice.completion_tokens}

    def _events_of(self, parts: Parts) -> Iterable[bytes]:
        for part in parts:
            if isinstance(part, Thought):
                yield self._grown("thinking", part.text) if self._thinks else b""
                continue
            given = _input_of(part) if isinstance(part, Call) else None
            if isinstance(part, Call) and given is not None:
                yield self._close()
                yield self._call(part, given)
            else:
                yield self._grown("text", part.arguments if isinstance(part, Call) else part)

    def _grown(self, kind: str, text: str) -> bytes:
        """More of the open block, or of a new one where that is of another type."""
        if self._is_open and self._blocks[-1]["type"] == kind:
            opened = b""
        else:
            opened = self._close() + self._open({"type": kind, kind: "", **OF_BLOCKS[kind]})
        self._blocks[-1][kind] += text
        return opened + self._delta({"type": f"{kind}_delta", kind: text})

    def _call(self, call: Call, given: dict[str, Any]) -> bytes:
        opened = self._open({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
        self._blocks[-1]["input"] = given
        partial = json.dumps(given, ensure_ascii=False)
        return opened + self._delta({"type": "input_json_delta", "partial_json": partial}) + self._close()

    def _open(self, block: dict[str, Any]) -> bytes:
        self._blocks.append(block)
        self._is_open = True
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if not self._is_open:
            return b""
        self._is_open = False
        return _event("content_block_stop", index=self._index)

    @property
    def _index(self) -> int:
        return len(self._blocks) - 1


class TokenCount(MessageAnswer):
    """What counting the tokens of a prompt is answered with: the answer itself is thrown away."""

    def document(self) -> dict[str, Any]:
        """The number of tokens.

        Raises:
            ApiError: the model does not say it.
        """
        if self._choice.prompt_tokens is None:
            raise ApiError(
                "the model was released before Slipway's models counted tokens. Release it again.",
                param="model",
                code="unsupported_parameter",
            )
        return {"input_tokens": self._choice.prompt_tokens}


def _input_of(call: Call) -> dict[str, Any] | None:
    """The arguments of a call; None where the answer was cut off within them, or where they are no object."""
    try:
        found = read_arguments(call.arguments)
    except BoundsError:
        return None
    return found if isinstance(found, dict) else None


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + written({"type": kind, **fields}) + b"\n\n"
