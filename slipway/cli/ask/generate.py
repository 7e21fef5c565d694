"""Triton's generate extension over HTTP: one request, whose answer streams as server-sent events.

Steps use gRPC (slipway/tasks/adapters/triton/triton.py), whose client takes half a second of CPU to import. Both send
the same inputs.
docs.nvidia.com/deeplearning/triton-inference-server, protocol/extension_generate.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from slipway.cli.ask.prompt_inputs import Body
from slipway.cli.deadline import within
from slipway.tasks.adapters.triton.generate_request import Column, GenerateRequest, columns, prompt_columns, rendered
from slipway.tasks.adapters.triton.triton import NO_KEY, Chunk
from slipway.tasks.contracts.base import parse_json
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.wire.prompt_model import ModelInputs, Prompt, model_inputs, prompt_of, with_prompt

QUOTED_CHARS = 256
EVENT = b"data:"
LINE_BYTES = 1 << 20
ANSWER_BYTES = 64 << 20
"""The most that a whole answer may have. A million tokens take a tenth of it."""
MISREAD = (LookupError, TypeError, ValueError, AttributeError)
"""What reading a document of the wrong shape raises."""

MakeBody = Callable[[ModelInputs], Body]
"""From a model's inputs to the body of a request."""


@dataclass(frozen=True)
class Piece(Chunk):
    """A piece of an answer, with the number of tokens where the model counts them.

    Slipway's models count the whole answer with its last piece, and Triton's vLLM backend counts each piece.
    """

    tokens: int | None = None


class GenerateClient:
    """A connection to one Triton, for one thread and one request at a time."""

    def __init__(self, connection: http.client.HTTPConnection, address: str, api_key: str = "") -> None:
        """`address` names the other end in errors; `api_key` is sent with every request."""
        self._connection, self._address = connection, address
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.sent_at_s = 0.0
        """The monotonic second at which the newest request was sent."""

    def stream(self, model: str, request: GenerateRequest, timeout_s: float) -> Iterator[Piece]:
        """The answer in pieces as they arrive. A model that cannot stream sends one piece.

        Raises:
            InputError: the server has no such model, or refused the request.
            UnavailableError: the server did not answer, or the answer did not end within `timeout_s`.
        """
        with self._failures_of(model, timeout_s):
            deadline = time.monotonic() + timeout_s
            model_inputs = self._model_inputs(model, deadline)
            self.sent_at_s = time.monotonic()
            if model_inputs.prompt_model is not None:
                prompt = self._prompt(model_inputs.prompt_model, _document(prompt_columns(request)), deadline)
                request = rendered(request, prompt)
            yield from self._pieces(model, _document(columns(request, model_inputs.names, stream=True)), deadline)

    def inputs(self, model: str, timeout_s: float) -> ModelInputs:
        """What a model takes.

        Raises:
            InputError: the server has no such model.
            UnavailableError: the server did not answer within `timeout_s`.
        """
        with self._failures_of(model, timeout_s, more_time=""):
            return self._model_inputs(model, time.monotonic() + timeout_s)

    def pieces(self, model: str, make: MakeBody, timeout_s: float) -> Iterator[Piece]:
        """The answer to the request that `make` builds, as `stream`.

        Raises:
            InputError: as `stream`, or from `make`.
            UnavailableError: as `stream`.
        """
        with self._failures_of(model, timeout_s):
            deadline = time.monotonic() + timeout_s
            model_inputs = self._model_inputs(model, deadline)
            body = make(model_inputs)
            inputs, self.sent_at_s = body.inputs, time.monotonic()
            if model_inputs.prompt_model is not None and body.to_render is not None:
                inputs = with_prompt(inputs, self._prompt(model_inputs.prompt_model, body.to_render, deadline))
            yield from self._pieces(model, inputs, deadline)

    @contextmanager
    def _failures_of(
        self, model: str, timeout_s: float, more_time: str = ", or allow more time with --timeout"
    ) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise UnavailableError(
                f"{self._address}: {model} did not finish its answer within {timeout_s:.0f} s",
                remedy=f"Check whether the server is overloaded, and try again{more_time}.",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(
                f"{self._address}: the connection failed",
                found=(str(error) or type(error).__name__)[:QUOTED_CHARS],
                remedy="Check that its server is up, and try again.",
            ) from error

    def _model_inputs(self, model: str, deadline: float) -> ModelInputs:
        document = self._document(model, self._send("GET", f"{_path(model)}/config", deadline), deadline)
        with self._understood(document):
            return model_inputs(document)

    def _prompt(self, model: str, inputs: Mapping[str, Any], deadline: float) -> Prompt:
        response = self._send("POST", f"{_path(model)}/generate", deadline, json.dumps(inputs).encode())
        document = self._document(model, response, deadline)
        with self._understood(document):
            return prompt_of(document)

    def _pieces(self, model: str, inputs: Mapping[str, Any], deadline: float) -> Iterator[Piece]:
        body = json.dumps(inputs).encode()
        response = self._send("POST", f"{_path(model)}/generate_stream", deadline, body)
        if response.status != http.client.OK:
            self._document(model, response, deadline)
        for line in self._lines(response, deadline):
            if line.startswith(EVENT):
                yield self._piece(model, line.removeprefix(EVENT))

    def _piece(self, model: str, event: bytes) -> Piece:
        fields = self._object(event)
        if "error" in fields:
            raise self._refusal(model, str(fields["error"]), 400)
        with self._understood(fields):
            reason = _first(fields.get("finish_reason"))
            # vLLM's backend writes None until the answer ends
            tokens = _first(fields.get("completion_tokens", fields.get("num_output_tokens")))
            text, ended = _first(fields.get("text_output")), "" if reason == "None" else reason
            thought = _first(fields.get("reasoning_content"))
            return Piece(text, time.monotonic(), ended, thought=thought, tokens=int(tokens) if tokens else None)

    def _object(self, text: bytes) -> dict[str, Any]:
        try:
            document = parse_json(text, "an answer")
        except InputError as error:
            raise self._foreign(text) from error
        if not isinstance(document, dict):
            raise self._foreign(text)
        return document

    @contextmanager
    def _understood(self, document: Mapping[str, Any]) -> Iterator[None]:
        try:
            yield
        except MISREAD as error:
            raise self._foreign(str(document)[:QUOTED_CHARS].encode(errors="replace")) from error

    def _send(self, method: str, path: str, deadline: float, body: bytes | None = None) -> http.client.HTTPResponse:
        headers = self._headers | ({"Content-Type": "application/json"} if body else {})
        if self._connection.sock is None:
            self._connection.connect()
        self._wait_until(deadline)
        self._connection.request(method, path, body, headers)
        return within(deadline - time.monotonic(), self._connection.getresponse)

    def _lines(self, response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
        # not readline(): at a connection that breaks off between two chunks it returns as at the end of the answer
        unread, left = b"", ANSWER_BYTES
        while data := self._read(response, deadline):
            left -= len(data)
            if left < 0:
                raise self._foreign(data)
            *lines, unread = (unread + data).split(b"\n")
            yield from lines
            if len(unread) > LINE_BYTES:
                raise self._foreign(unread)
        yield unread

    def _read(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        self._wait_until(deadline)
        return response.read1(LINE_BYTES)

    def _wait_until(self, deadline: float) -> None:
        if (left_s := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        if self._connection.sock is not None:  # None after the server announced that it closes the connection
            self._connection.sock.settimeout(left_s)

    def _document(self, model: str, response: http.client.HTTPResponse, deadline: float) -> dict[str, Any]:
        # Triton refuses a streamed request with an event instead of a document
        text = b""
        while len(text) < LINE_BYTES and (data := self._read(response, deadline)):
            text += data
        response.close()  # read1, unlike read, does not notice the end, and the connection waits for it
        text = text.removeprefix(EVENT)
        if response.status == http.client.OK:
            return self._object(text)
        message: Any = None
        with suppress(InputError):
            message = self._object(text).get("error")
        raise self._refusal(model, str(message or text.decode(errors="replace") or response.reason), response.status)

    def _refusal(self, model: str, message: str, status: int) -> PipelineError:
        what = f"{self._address}: {model}: {' '.join(message.split())[:QUOTED_CHARS].rstrip('.')}"
        if status == http.client.UNAUTHORIZED:
            return InputError(what, remedy=NO_KEY)
        if "unknown model" in message and "is not found" in message:
            return InputError(what, remedy="Check the name; `slipway status` lists the models.")
        if "unknown model" in message or status >= http.client.INTERNAL_SERVER_ERROR:
            return UnavailableError(what, remedy="Try again: its server is starting, stopping or full.")
        return InputError(what, remedy="Stay within the limits of the spec's engine section.")

    def _foreign(self, text: bytes) -> PipelineError:
        quoted = " ".join(text[:QUOTED_CHARS].decode(errors="replace").split())
        return InputError(
            f"{self._address} is not a Triton server",
            found=repr(quoted),
            expected="an answer of Triton's generate extension",
            remedy="Give the model's HTTP port.",
        )


def _path(model: str) -> str:
    return f"/v2/models/{quote(model, safe='')}"


def _document(columns: Sequence[Column]) -> dict[str, Any]:
    return {name: _json(value) for name, _, value in columns}


def _json(value: bytes | float | tuple[bytes, ...]) -> str | float | list[str]:
    if isinstance(value, tuple):
        return [text.decode() for text in value]
    return value.decode() if isinstance(value, bytes) else value


def _first(value: Any) -> str:
    """The text of an output tensor, which is a list if it has more than one element.

    Raises:
        TypeError: it is neither text nor a number.
    """
    while isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, str | int | float | None):
        raise TypeError
    return "" if value is None else str(value)
