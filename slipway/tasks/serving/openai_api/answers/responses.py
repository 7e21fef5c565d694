"""From a Triton model's responses to the documents and events of /v1/responses. Pure."""

import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

from slipway.tasks.serving.openai_api.answers.openai import ChatForm, Choice, Parts, Piece, Thought, written
from slipway.tasks.serving.openai_api.http.errors import ApiError
from slipway.tasks.serving.openai_api.requests.responses import ResponseRequest
from slipway.tasks.serving.openai_api.requests.tool_calls import Call, Reader

LENGTH = "length"
IN_PROGRESS, COMPLETED, INCOMPLETE = "in_progress", "completed", "incomplete"
MESSAGE, REASONING = "message", "reasoning"
"""Types of items that grow."""
TEXTS = {MESSAGE: "output_text", REASONING: "reasoning_text"}
"""What their only part is called."""
IDS = {MESSAGE: "msg", REASONING: "rs"}
OF_ITEMS: Mapping[str, Mapping[str, Any]] = {MESSAGE: {"role": "assistant"}, REASONING: {"summary": []}}
OF_PARTS: Mapping[str, Mapping[str, Any]] = {MESSAGE: {"annotations": [], "logprobs": []}, REASONING: {}}
OF_EVENTS: Mapping[str, Mapping[str, Any]] = {MESSAGE: {"logprobs": []}, REASONING: {}}
"""Further fields of items, their parts, and the events that add to a part."""


class ResponseAnswer:
    """One answer, as it is written: items of thoughts, text and calls, in the order in which the model made them."""

    def __init__(self, request: ResponseRequest, release: str, *, one_call: bool) -> None:
        """`release` is the release that answers."""
        self._request, self._release, self._one_call = request, release, one_call
        self._choice = Choice(ChatForm(0), None, one_call)
        self._items: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        """The item of text or thoughts that grows."""
        self._sequence = 0
        self._id, self._created = f"resp_{secrets.token_hex(12)}", int(time.time())

    def begin(self, reader: Reader | None = None) -> bytes:
        """Start the answer; what its stream begins with."""
        self._choice = Choice(ChatForm(0), reader, self._one_call)
        return self._event("response.created", response=self._document(IN_PROGRESS)) + self._event(
            "response.in_progress", response=self._document(IN_PROGRESS)
        )

    def add(self, new: Piece) -> None:
        """Take the next response of the model."""
        self.event(new)

    def event(self, new: Piece) -> bytes:
        """Take the next response and write its events."""
        events = b"".join(self._events_of(self._choice.add(new)))
        return events + (self._close() if new.finish_reason else b"")

    def last_events(self) -> bytes:
        """What a stream ends with."""
        return self._event(f"response.{self._status}", response=self.document())

    def failed(self, error: ApiError) -> bytes:
        """What a stream ends with that breaks off."""
        return self._event("error", code=error.code, message=error.message, param=error.param)

    def document(self) -> dict[str, Any]:
        """The answer in one document."""
        return self._document(self._status)

    @property
    def _status(self) -> str:
        return INCOMPLETE if self._choice.finish_reason == LENGTH else COMPLETED

    def _events_of(self, parts: Parts) -> Iterable[bytes]:
        for part in parts:
            if isinstance(part, Call):
                yield self._close()
                yield self._call(part)
            elif isinstance(part, Thought):
                yield from self._grown(REASONING, part.text)
            else:
                yield from self._grown(MESSAGE, part)

    def _grown(self, kind: str, text: str) -> Iterable[bytes]:
        """More of the open item, or of a new one where that is of another kind."""
        if self._open is None or self._open["type"] != kind:
            yield self._close()
            yield self._begun(kind)
        assert self._open is not None
        self._open["content"][0]["text"] += text
        yield self._event(f"response.{TEXTS[kind]}.delta", **self._place(), delta=text, **OF_EVENTS[kind])

    def _begun(self, kind: str) -> bytes:
        part = {"type": TEXTS[kind], "text": "", **OF_PARTS[kind]}
        item = {"id": f"{IDS[kind]}_{secrets.token_hex(12)}", "type": kind, "status": IN_PROGRESS, **OF_ITEMS[kind]}
        added = self._event("response.output_item.added", output_index=len(self._items), item={**item, "content": []})
        self._open = {**item, "content": [part]}
        self._items.append(self._open)
        return added + self._event("response.content_part.added", **self._place(), part=part)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        item, place, kind = self._open, self._place(), self._open["type"]
        item["status"] = self._status
        part, self._open = item["content"][0], None
        return (
            self._event(f"response.{TEXTS[kind]}.done", **place, text=part["text"], **OF_EVENTS[kind])
            + self._event("response.content_part.done", **place, part=part)
            + self._event("response.output_item.done", output_index=place["output_index"], item=item)
        )

    def _place(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self._items) - 1, "content_index": 0}

    def _call(self, call: Call) -> bytes:
        index, named = len(self._items), self._request.name_of(call.name)
        item = {"id": f"fc_{secrets.token_hex(12)}", "type": "function_call", "call_id": call.id, **named}
        place = {"item_id": item["id"], "output_index": index}
        whole = {**item, "arguments": call.arguments, "status": COMPLETED}
        self._items.append(whole)
        started = {**item, "arguments": "", "status": IN_PROGRESS}
        return (
            self._event("response.output_item.added", output_index=index, item=started)
            + self._event("response.function_call_arguments.delta", **place, delta=call.arguments)
            + self._event(
                "response.function_call_arguments.done", **place, name=named["name"], arguments=call.arguments
            )
            + self._event("response.output_item.done", output_index=index, item=whole)
        )

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = written({"type": kind, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"

    def _document(self, status: str) -> dict[str, Any]:
        request = self._request
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": request.model,
            "output": self._items,
            "usage": self._usage(),
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == INCOMPLETE else None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": {"release": self._release},
            "parallel_tool_calls": not self._one_call,
            "previous_response_id": None,
            "store": False,
            "temperature": request.temperature or 0,
            "text": {"format": (request.text and request.text.format) or {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": [tool.model_dump() for tool in request.tools or ()],
            "top_p": request.top_p,
            "truncation": "disabled",
        }

    def _usage(self) -> Mapping[str, Any] | None:
        read, answered = self._choice.prompt_tokens, self._choice.completion_tokens
        if read is None or answered is None:
            return None
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": answered,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + answered,
        }
