"""The routes of OpenAI's API, as an aiohttp application over a Triton in the same pod.

It listens on a Unix socket, behind the pod's front, which closes connections and drains: serving/rendered/front.py.
"""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from aiohttp import ClientSession, ClientTimeout, UnixConnector, web

from tasks.contracts.errors import InputError, UnavailableError
from tasks.contracts.wire import exposition
from tasks.contracts.wire.prompt_model import Prompt, prompt_of, with_prompt
from tasks.serving.openai_api.adapters import ModelName, adapters_of, with_adapter
from tasks.serving.openai_api.answers import (
    CANCELLED,
    Answer,
    ChatForm,
    CompletionForm,
    Form,
    Piece,
    event,
    piece,
    written,
)
from tasks.serving.openai_api.errors import ApiError, unavailable
from tasks.serving.openai_api.formats import call_reader
from tasks.serving.openai_api.inputs import Question, ServedModel, chat_question, completion_inputs, served_model
from tasks.serving.openai_api.metrics import AnswerMetrics
from tasks.serving.openai_api.requests import BODY_BYTES, ChatRequest, CompletionRequest, read_chat, read_completion

log = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""Counted for a client that left before its answer ended; nginx's number."""
OWN, PAGE_TIMEOUT = "own", ClientTimeout(total=5)
RETRY_AFTER_S = 1
STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Models(Protocol):
    """Triton, as far as the routes need it; tasks.adapters.triton.triton_generate.GenerateStreams."""

    async def config(self, model: str) -> Mapping[str, Any]:
        """The model's configuration.

        Raises:
            UnavailableError: Triton does not answer, or the model is not loaded.
        """

    async def is_ready(self, model: str) -> bool:
        """Whether the model takes requests; False where Triton does not answer."""

    def responses(self, model: str, inputs: Mapping[str, Any]) -> AsyncGenerator[list[Mapping[str, Any]], None]:
        """Yield the model's responses, as many together as arrive together.

        Raises:
            InputError: the model refused the request.
            UnavailableError: Triton does not answer, or the answer broke off.
        """


class Routes:
    """The handlers of one release, or of one combination of a group's releases."""

    def __init__(
        self,
        models: Models,
        names: Sequence[str],
        release: str,
        clock: Callable[[], float] = time.perf_counter,
        others: Sequence[Path] = (),
    ) -> None:
        """`clock` gives seconds from any fixed moment; `others` are the sockets of processes that share the work."""
        self._models, self._names, self._release, self._clock = models, tuple(names), release, clock
        self._others = tuple(others)
        self._known: dict[str, tuple[ServedModel, tuple[str, ...]]] = {}
        self._counted = AnswerMetrics()

    def application(self) -> web.Application:
        """The application, which answers every error in OpenAI's form."""
        application = web.Application(client_max_size=BODY_BYTES, middlewares=[_errors])
        application.add_routes(
            [
                web.get("/v1/models", self.models),
                web.get("/v1/models/{name}", self.model),
                web.post("/v1/chat/completions", self.chat),
                web.post("/v1/completions", self.completion),
                # not below /v1/, so only the pod's own containers and the front's port for metrics get here
                web.get("/metrics", self.metrics),
                web.get("/health", self.health),
                web.get("/health/live", self.live),
            ]
        )
        return application

    async def metrics(self, request: web.Request) -> web.Response:
        """GET /metrics: what all processes counted since they started, for Prometheus; with `?own`, this one alone."""
        page = exposition.text(self._counted.metrics())
        if OWN not in request.query and self._others:
            page = exposition.summed([page, *[await _page_of(socket) for socket in self._others]])
        return web.Response(text=page, headers={"Content-Type": exposition.CONTENT_TYPE})

    async def health(self, _: web.Request) -> web.Response:
        """GET /health: 200 if every model takes requests, else 503."""
        waiting = [name for name in self._names if not await self._models.is_ready(name)]
        if waiting:
            raise unavailable(f"{', '.join(waiting)} is not ready")
        return web.json_response({"status": "ok"})

    async def live(self, _: web.Request) -> web.Response:
        """GET /health/live: 200 from a process whose loop turns, whatever the models do."""
        return web.json_response({"status": "ok"})

    async def models(self, _: web.Request) -> web.Response:
        """GET /v1/models: the models, and their adapters as further ones."""
        documents = []
        for name in self._names:
            documents.append(_model(ModelName(name)))
            documents += [_model(ModelName(name, adapter)) for adapter in await self._adapters(name)]
        return web.json_response({"object": "list", "data": documents})

    async def model(self, request: web.Request) -> web.Response:
        """GET /v1/models/<name>."""
        name = ModelName.read(request.match_info["name"])
        await self._check(name)
        return web.json_response(_model(name))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        asked = read_chat(await request.read())
        name = ModelName.read(asked.model)
        question = chat_question(asked, await self._served(name))
        question = replace(question, inputs=with_adapter(question.inputs, name.adapter))
        return await self._answer(request, asked, question, ChatForm())

    async def completion(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        asked = read_completion(await request.read())
        name = ModelName.read(asked.model)
        inputs = with_adapter(completion_inputs(asked, await self._served(name)), name.adapter)
        return await self._answer(request, asked, Question(inputs), CompletionForm())

    async def _check(self, name: ModelName) -> None:
        if name.base in self._names and name.adapter is None:
            return
        adapters = (await self._read(name.base))[1] if name.base in self._names else ()
        if name.adapter not in adapters:
            there = [*self._names, *(str(ModelName(name.base, adapter)) for adapter in adapters)]
            raise ApiError(
                f"the model {str(name)[:64]!r} does not exist; there is {', '.join(there)}.",
                param="model",
                code="model_not_found",
                status=HTTPStatus.NOT_FOUND,
            )

    async def _adapters(self, name: str) -> tuple[str, ...]:
        """Names of the model's adapters; none as long as Triton has not loaded it."""
        try:
            return (await self._read(name))[1]
        except UnavailableError:
            return ()

    async def _served(self, name: ModelName) -> ServedModel:
        await self._check(name)
        return (await self._read(name.base))[0]

    async def _read(self, name: str) -> tuple[ServedModel, tuple[str, ...]]:
        """The model and its adapters by its configuration, read once: the repository of a pod never changes."""
        if name not in self._known:
            config = await self._models.config(name)
            self._known[name] = served_model(config), adapters_of(config)
        return self._known[name]

    async def _answer(
        self,
        request: web.Request,
        asked: ChatRequest | CompletionRequest,
        question: Question,
        form: Form,
    ) -> web.StreamResponse:
        answer = Answer(form, asked.model, self._release, asked.includes_usage, call_reader(asked))
        async with aclosing(self._timed(ModelName.read(asked.model).base, question)) as pieces:
            if asked.stream:
                return await _streamed(request, answer, pieces)
            async for together in pieces:
                for each in together:
                    answer.add(each)
            return web.Response(body=written(answer.document()), content_type="application/json")

    async def _timed(self, model: str, question: Question) -> AsyncGenerator[list[Piece], None]:
        """Yield what `_pieces` does, and count it. Errors before a request reaches the model are not counted."""
        counted, code, before, has_text = self._counted, CLIENT_LEFT, self._clock(), False
        try:
            async with aclosing(self._pieces(model, question)) as arriving:
                async for together in arriving:
                    now, texts = self._clock(), sum(bool(each.text) for each in together)
                    if texts:
                        count = counted.next_tokens if has_text else counted.first_tokens
                        count(model, now - before, texts)
                        before, has_text = now, True
                    counted.count_tokens(model, together)
                    yield together
            code = int(HTTPStatus.OK)
        except InputError:
            code = int(HTTPStatus.BAD_REQUEST)
            raise
        except UnavailableError:
            code = int(HTTPStatus.SERVICE_UNAVAILABLE)
            raise
        finally:
            counted.requests[model, code] += 1

    async def _pieces(self, model: str, question: Question) -> AsyncGenerator[list[Piece], None]:
        """Yield the model's responses.

        Raises:
            InputError: the model refused the request.
            UnavailableError: there is no answer, or it has no end.
        """
        ended, inputs, call_format = False, question.inputs, None
        if question.to_render is not None:
            prompt = await self._prompt(model, question.to_render)
            inputs, call_format = with_prompt(inputs, prompt), prompt.call_format
        async with aclosing(self._models.responses(model, inputs)) as arrived:
            async for events in arrived:
                pieces = [piece(each, call_format) for each in events]
                reasons = {each.finish_reason for each in pieces if each.finish_reason}
                if CANCELLED in reasons:
                    raise UnavailableError("the model's server ended the answer before it was complete")
                ended = ended or bool(reasons)
                yield pieces
        if not ended:
            raise UnavailableError("the model's server sent no end of the answer")

    async def _prompt(self, model: str, to_render: Mapping[str, Any]) -> Prompt:
        """The prompt that another model makes of the messages.

        Raises:
            InputError: that model refused them.
            UnavailableError: there is no answer.
        """
        renders = self._known[model][0].prompt_model
        assert renders is not None
        found: list[Mapping[str, Any]] = []
        async with aclosing(self._models.responses(renders, to_render)) as arrived:
            async for events in arrived:
                found += events
        if not found:
            raise UnavailableError("the model's server sent no prompt")
        return prompt_of(found[0])


async def _streamed(
    request: web.Request, answer: Answer, pieces: AsyncGenerator[list[Piece], None]
) -> web.StreamResponse:
    """Send the answer as server-sent events. Its status is known with the first response, so that a refusal is one."""
    response = web.StreamResponse(headers=STREAM_HEADERS)
    first: list[Piece] = await anext(pieces, [])
    await response.prepare(request)
    await response.write(answer.first_event() + _events(answer, first))
    try:
        async for together in pieces:
            if data := _events(answer, together):
                await response.write(data)
    except (InputError, UnavailableError) as error:
        # the status is sent already: OpenAI's clients raise an error for such an event
        last = event(unavailable(str(error)).body)
    else:
        last = answer.last_events()
    await response.write_eof(last)
    return response


def _events(answer: Answer, pieces: Sequence[Piece]) -> bytes:
    return b"".join(map(answer.event, pieces))


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        refused = error
    except InputError as error:
        refused = ApiError(str(error))
    except UnavailableError as error:
        refused = unavailable(str(error))
    except web.HTTPRequestEntityTooLarge:
        refused = ApiError(f"the request has more than {BODY_BYTES} bytes.", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    except web.HTTPException as error:
        refused = ApiError(f"{request.method} {request.path[:64]}: {error.reason}.", status=error.status)
    except Exception:
        log.exception("unexpected error")
        refused = ApiError("unexpected error; see the log of the container.", status=HTTPStatus.INTERNAL_SERVER_ERROR)
    retry = {"Retry-After": str(RETRY_AFTER_S)} if refused.status == HTTPStatus.SERVICE_UNAVAILABLE else None
    return web.json_response(refused.body, status=refused.status, headers=retry)


def _model(name: ModelName) -> dict[str, Any]:
    document = {"id": str(name), "object": "model", "created": 0, "owned_by": "slipway"}
    return document if name.adapter is None else {**document, "root": name.adapter, "parent": name.base}


async def _page_of(socket: Path) -> str:
    """The metrics of another process."""
    own = f"http://localhost/metrics?{OWN}=1"
    async with (
        ClientSession(connector=UnixConnector(str(socket)), timeout=PAGE_TIMEOUT) as session,
        session.get(own) as page,
    ):
        return await page.text()
