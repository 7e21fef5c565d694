"""Sends an answer in the form of its route, as one document or as a stream of server-sent events."""

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from aiohttp import web

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.serving.openai_api.answers.openai import Piece, written
from slipway.tasks.serving.openai_api.generation.generate import Generated
from slipway.tasks.serving.openai_api.generation.inputs import Question
from slipway.tasks.serving.openai_api.http.errors import ApiError, unavailable
from slipway.tasks.serving.openai_api.requests.tool_calls import Reader

STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


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
    """The whole answer in one document."""
    async for each in generated:
        if each.begins is not None:
            _begun(answer, each.begins)
        for new in each.pieces:
            answer.add(new)
    return web.Response(body=written(answer.document()), content_type="application/json")


async def stream(
    request: web.Request, answer: AnyAnswer, generated: AsyncGenerator[Generated, None]
) -> web.StreamResponse:
    """Send the answer as server-sent events. Its status is known with the first response, so that a refusal is one."""
    response = web.StreamResponse(headers=STREAM_HEADERS)
    first = await anext(generated)
    await response.prepare(request)
    await response.write(_events(answer, first))
    try:
        async for each in generated:
            if data := _events(answer, each):
                await response.write(data)
    except (InputError, UnavailableError) as error:
        last = answer.failed(unavailable(str(error)))  # the status is sent already
    else:
        last = answer.last_events()
    await response.write_eof(last)
    return response


def _events(answer: AnyAnswer, generated: Generated) -> bytes:
    begins = b"" if generated.begins is None else _begun(answer, generated.begins)
    return begins + b"".join(map(answer.event, generated.pieces))


def _begun(answer: AnyAnswer, question: Question) -> bytes:
    return answer.begin(None if question.new_reader is None else question.new_reader())
