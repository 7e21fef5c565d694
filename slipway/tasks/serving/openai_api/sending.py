"""Sends an answer in the form of its route, as one document or as a stream of server-sent events."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Protocol

from aiohttp import web

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.serving.openai_api.answers.openai import Piece, written
from slipway.tasks.serving.openai_api.generation.generate import Generated
from slipway.tasks.serving.openai_api.generation.inputs import MOST_LOGPROBS, Question
from slipway.tasks.serving.openai_api.http.errors import ApiError, unavailable
from slipway.tasks.serving.openai_api.requests.tool_calls import Reader

STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
PATIENCE_S = 60.0
"""How long the parts of one answer may wait for their client, all together: it has its turn at the model meanwhile."""


class AnyAnswer(Protocol):
    """What a request is answered with, in the form of its route, as it is written."""

    def begin(self, reader: Reader | None = None) -> bytes:
        """Start the answer to the next question; what its stream begins with."""

    def add(self, new: Piece) -> None:
        """Take the next response of the model."""

    def event(self, new: Piece) -> bytes:
        """Take the next response and write its events."""

    def last_events(self) -> bytes:
        """What a stream ends with."""

    def failed(self, error: ApiError) -> bytes:
        """What a stream ends with that breaks off."""

    def document(self) -> dict[str, Any]:
        """The answer in one document."""


async def document(answer: AnyAnswer, generated: AsyncGenerator[Generated, None]) -> web.Response:
    """The whole answer in one document.

    Raises:
        ApiError: it has more log-probabilities than may be kept of it.
    """
    kept = 0
    async for each in generated:
        if each.begins is not None:
            _begun(answer, each.begins)
        for new in each.pieces:
            kept += sum(1 + len(token.get("top_logprobs", ())) for token in new.logprobs)
            answer.add(new)
        if kept > MOST_LOGPROBS:
            raise ApiError(
                f"the answer has more than {MOST_LOGPROBS} log-probabilities: tokens, times n, times 1 + top_logprobs. "
                "Set stream, or lower max_tokens, n or top_logprobs.",
                param="logprobs",
            )
    return web.Response(body=written(answer.document()), content_type="application/json")


async def stream(
    request: web.Request, answer: AnyAnswer, generated: AsyncGenerator[Generated, None]
) -> web.StreamResponse:
    """Send the answer as server-sent events. Its status is known with the first response, so that a refusal is one.

    The connection of a client that does not read is closed.
    """
    writer = _Writer(web.StreamResponse(headers=STREAM_HEADERS))
    first = await anext(generated)
    await writer.response.prepare(request)
    try:
        await writer.write(_events(answer, first))
        last = await _sent(writer, answer, generated)
        await writer.write(last)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # close would wait for the client
    return writer.response


async def _sent(writer: "_Writer", answer: AnyAnswer, generated: AsyncGenerator[Generated, None]) -> bytes:
    """Send what follows the first responses; what the stream ends with."""
    try:
        async for each in generated:
            if each.begins is not None:
                writer.left_s = PATIENCE_S
            if data := _events(answer, each):
                await writer.write(data)
    except (InputError, UnavailableError) as error:
        return answer.failed(unavailable(str(error)))  # the status is sent already
    return answer.last_events()


class _Writer:
    """Writes a response; `left_s` is how long its client may still have it wait."""

    def __init__(self, response: web.StreamResponse) -> None:
        self.response, self.left_s = response, PATIENCE_S

    async def write(self, data: bytes) -> None:
        """Send it, or raise TimeoutError."""
        clock = asyncio.get_running_loop().time
        began = clock()
        async with asyncio.timeout(self.left_s):
            await self.response.write(data)
        self.left_s -= clock() - began


def _events(answer: AnyAnswer, generated: Generated) -> bytes:
    begins = b"" if generated.begins is None else _begun(answer, generated.begins)
    return begins + b"".join(map(answer.event, generated.pieces))


def _begun(answer: AnyAnswer, question: Question) -> bytes:
    return answer.begin(None if question.new_reader is None else question.new_reader())
