"""Triton's generate extension for many requests at once, over aiohttp's client: responses as they arrive.

A client that leaves is a cancelled request: the connection to Triton is closed, and Triton cancels the request.
docs.nvidia.com/deeplearning/triton-inference-server, protocol/extension_generate.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from pydantic_core import from_json

from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError
from slipway.tasks.contracts.wire.trace_context import TRACEPARENT

EVENT = b"data:"
LINE_BYTES = 1 << 20
QUOTED_CHARS = 512
CONNECT_S = 5.0
KEPT_S = 2.0
"""How long an idle connection is kept. Triton 2.51 counts it as a request and waits for it when it ends."""
PASSING = ("unknown model", "is not ready")
"""Parts of messages about a model that loads or unloads. The names that are asked for are those of the repository."""
RETRY = "Ask again."
"""How messages of Slipway's models end where a retry may help. Triton answers every refusal of a stream with status
400, whatever the model calls it (2.51)."""


class GenerateStreams:
    """Connections to one Triton. Used as an asynchronous context."""

    def __init__(self, host: str, port: int) -> None:
        self._base = f"http://{f'[{host}]' if ':' in host else host}:{port}/v2/models"

    async def __aenter__(self) -> Self:
        """Open the session; connections follow with requests."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            read_bufsize=LINE_BYTES,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        await self._session.close()

    async def config(self, model: str) -> Mapping[str, Any]:
        """The model's configuration, completed by Triton.

        Raises:
            UnavailableError: Triton does not answer, or the model is not loaded.
        """
        async with self._exchange("GET", f"{self._base}/{quote(model, safe='')}/config") as response:
            document: Mapping[str, Any] = json.loads(await _ok(response))
        return document

    async def is_ready(self, model: str) -> bool:
        """Whether the model takes requests; False where Triton does not answer."""
        try:
            async with self._exchange("GET", f"{self._base}/{quote(model, safe='')}/ready") as response:
                return response.status == HTTPStatus.OK
        except UnavailableError:
            return False

    async def responses(
        self, model: str, inputs: Mapping[str, Any], trace_parent: str = ""
    ) -> AsyncGenerator[list[Mapping[str, Any]], None]:
        """Yield the model's responses, as many together as arrive together.

        Triton's own spans belong to `trace_parent`, a header of W3C Trace Context, if that is not empty.

        Raises:
            InputError: the model refused the request.
            UnavailableError: Triton does not answer, or the answer broke off.
        """
        url, unread = f"{self._base}/{quote(model, safe='')}/generate_stream", b""
        headers = {TRACEPARENT: trace_parent} if trace_parent else {}
        async with self._exchange("POST", url, inputs, headers) as response:
            if response.status != HTTPStatus.OK:
                await _ok(response)
            async for data in response.content.iter_any():
                *lines, unread = (unread + data).split(b"\n")
                if len(unread) > LINE_BYTES:
                    raise UnavailableError(f"{model} sent an event of more than {LINE_BYTES} bytes")
                yield [_response(line) for line in lines if line.startswith(EVENT)]

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.request(method, url, json=body, headers=headers) as response:
                yield response
        except (aiohttp.ClientError, OSError) as error:
            message = " ".join(str(error).split())[:QUOTED_CHARS] or type(error).__name__
            raise UnavailableError("the model's server does not answer", found=message) from error


async def _ok(response: aiohttp.ClientResponse) -> bytes:
    """The body of a response whose status is 200.

    Raises:
        InputError: the request was refused.
        UnavailableError: Triton is not ready.
    """
    # Triton refuses a streamed request with an event in place of a document
    body = (await response.content.read(LINE_BYTES)).removeprefix(EVENT)
    if response.status == HTTPStatus.OK:
        return body
    try:
        message = str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        message = body.decode(errors="replace") or str(response.reason)
    raise _refusal(message, response.status)


def _response(line: bytes) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = from_json(line.removeprefix(EVENT))
    except ValueError as error:
        raise UnavailableError("the model's server sent an event that is not JSON", found=str(error)) from error
    if "error" in document:
        raise _refusal(str(document["error"]), HTTPStatus.SERVICE_UNAVAILABLE)
    return document


def _refusal(message: str, status: int) -> PipelineError:
    whole = " ".join(message.split())
    text = whole[:QUOTED_CHARS]
    passes = whole.endswith(RETRY) or any(part in text for part in PASSING)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or passes:
        return UnavailableError(text)
    return InputError(text)
