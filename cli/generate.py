"""Triton's generate extension over HTTP: one request, whose answer streams as server-sent events.

Steps use gRPC (tasks/adapters/triton.py), whose client takes half a second of CPU to import. Both send the same inputs.
docs.nvidia.com/deeplearning/triton-inference-server, protocol/extension_generate.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from cli.prompt_inputs import Body
from tasks.adapters.generate_request import Column, GenerateRequest, columns, prompt_columns, rendered
from tasks.adapters.triton import Chunk
from tasks.contracts.errors import InputError, PipelineError, UnavailableError
from tasks.contracts.prompt_model import ModelInputs, Prompt, model_inputs, prompt_of, with_prompt

QUOTED_CHARS = 256
EVENT = b"data:"
LINE_BYTES = 1 << 20

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

    def __init__(self, connection: http.client.HTTPConnection, address: str) -> None:
        """`address` names the other end in errors."""
        self._connection, self._address = connection, address
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
            known = self._known(model, deadline)
            self.sent_at_s = time.monotonic()
            if known.prompt_model is not None:
                prompt = self._prompt(known.prompt_model, _document(prompt_columns(request)), deadline)
                request = rendered(request, prompt)
            yield from self._pieces(model, _document(columns(request, known.names, stream=True)), deadline)

    def inputs(self, model: str, timeout_s: float) -> ModelInputs:
        """What a model takes.

        Raises:
            InputError: the server has no such model.
            UnavailableError: the server did not answer within `timeout_s`.
        """
        with self._failures_of(model, timeout_s):
            return self._known(model, time.monotonic() + timeout_s)

    def pieces(self, model: str, make: MakeBody, timeout_s: float) -> Iterator[Piece]:
        """The answer to the request that `make` builds, as `stream`.

        Raises:
            InputError: as `stream`, or from `make`.
            UnavailableError: as `stream`.
        """
        with self._failures_of(model, timeout_s):
            deadline = time.monotonic() + timeout_s
            known = self._known(model, deadline)
            body = make(known)
            inputs, self.sent_at_s = body.inputs, time.monotonic()
            if known.prompt_model is not None and body.to_render is not None:
                inputs = with_prompt(inputs, self._prompt(known.prompt_model, body.to_render, deadline))
            yield from self._pieces(model, inputs, deadline)

    @contextmanager
    def _failures_of(self, model: str, timeout_s: float) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise UnavailableError(
                f"{self._address}: {model} did not finish its answer within {timeout_s:.0f} s",
                remedy="Check whether the server is overloaded, and try again.",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(
                f"{self._address}: the connection failed",
                found=(str(error) or type(error).__name__)[:QUOTED_CHARS],
                remedy="Check that its server is up, and try again.",
            ) from error

    def _known(self, model: str, deadline: float) -> ModelInputs:
        return model_inputs(self._document(model, self._send("GET", f"{_path(model)}/config", deadline)))

    def _prompt(self, model: str, inputs: Mapping[str, Any], deadline: float) -> Prompt:
        response = self._send("POST", f"{_path(model)}/generate", deadline, json.dumps(inputs).encode())
        return prompt_of(self._document(model, response))

    def _pieces(self, model: str, inputs: Mapping[str, Any], deadline: float) -> Iterator[Piece]:
        body = json.dumps(inputs).encode()
        response = self._send("POST", f"{_path(model)}/generate_stream", deadline, body)
        if response.status != http.client.OK:
            self._document(model, response)
        for line in self._lines(response, deadline):
            if line.startswith(EVENT):
                yield self._piece(model, line.removeprefix(EVENT))

    def _piece(self, model: str, event: bytes) -> Piece:
        try:
            fields = json.loads(event)
        except ValueError as error:
            raise self._foreign(event) from error
        if "error" in fields:
            raise self._refusal(model, str(fields["error"]), 400)
        reason = _first(fields.get("finish_reason"))
        # vLLM's backend writes None until the answer ends
        tokens = _first(fields.get("completion_tokens", fields.get("num_output_tokens")))
        text, ended = _first(fields.get("text_output")), "" if reason == "None" else reason
        return Piece(text, time.monotonic(), ended, int(tokens) if tokens else None)

    def _send(self, method: str, path: str, deadline: float, body: bytes | None = None) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json"} if body else {}
        if self._connection.sock is None:
            self._connection.connect()
        self._wait_until(deadline)
        self._connection.request(method, path, body, headers)
        return self._connection.getresponse()

    def _lines(self, response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
        # not readline(): at a connection that breaks off between two chunks it returns as at the end of the answer
        unread = b""
        while data := self._read(response, deadline):
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

    def _document(self, model: str, response: http.client.HTTPResponse) -> dict[str, Any]:
        # Triton refuses a streamed request with an event instead of a document
        text = response.read(LINE_BYTES).removeprefix(EVENT)
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if response.status != http.client.OK:
            message = document.get("error") if isinstance(document, dict) else None
            raise self._refusal(
                model, str(message or text.decode(errors="replace") or response.reason), response.status
            )
        if not isinstance(document, dict):
            raise self._foreign(text)
        return document

    def _refusal(self, model: str, message: str, status: int) -> PipelineError:
        what = f"{self._address}: {model}: {' '.join(message.split())[:QUOTED_CHARS].rstrip('.')}"
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
    """The text of an output tensor, which is a list if it has more than one element."""
    while isinstance(value, list):
        value = value[0] if value else None
    return "" if value is None else str(value)
