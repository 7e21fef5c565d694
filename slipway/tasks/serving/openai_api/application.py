"""The routes of OpenAI's API, as an aiohttp application over a Triton in the same pod.

It listens on a Unix socket, behind the pod's front, which closes connections and drains: serving/rendered/front.py.
"""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from http import HTTPMethod, HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from aiohttp import ClientSession, ClientTimeout, UnixConnector, web

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.wire import exposition
from slipway.tasks.contracts.wire.prompt_model import Prompt, prompt_of, with_prompt
from slipway.tasks.serving.openai_api.answers import (
    CANCELLED,
    Answer,
    ChatForm,
    CompletionForm,
    Piece,
    piece,
    written,
)
from slipway.tasks.serving.openai_api.anthropic_answers import MessageAnswer, TokenCount, error_document
from slipway.tasks.serving.openai_api.anthropic_requests import RENAMED as NAMES_OF_MESSAGES
from slipway.tasks.serving.openai_api.anthropic_requests import read_count, read_messages
from slipway.tasks.serving.openai_api.bodies import read_body
from slipway.tasks.serving.openai_api.browsers import Browsers
from slipway.tasks.serving.openai_api.errors import ApiError, refusal, renamed, unavailable
from slipway.tasks.serving.openai_api.grammars import Grammars
from slipway.tasks.serving.openai_api.inputs import (
    Question,
    ServedModel,
    chat_question,
    completion_questions,
    served_model,
)
from slipway.tasks.serving.openai_api.lora_models import ModelName, loras_of, with_lora
from slipway.tasks.serving.openai_api.metrics import AnswerMetrics
from slipway.tasks.serving.openai_api.request_ids import (
    MESSAGES,
    add_request_id,
    is_anthropics,
    request_id,
    trace_parent,
)
from slipway.tasks.serving.openai_api.requests import (
    BODY_BYTES,
    ChatRequest,
    CompletionRequest,
    read_chat,
    read_completion,
)
from slipway.tasks.serving.openai_api.responses_answers import ResponseAnswer
from slipway.tasks.serving.openai_api.responses_requests import RENAMED as NAMES_OF_RESPONSES
from slipway.tasks.serving.openai_api.responses_requests import read_response
from slipway.tasks.serving.openai_api.tool_calls import Reader

log = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""Counted for a client that left before its answer ended; nginx's number."""
OWN, PAGE_TIMEOUT = "own", ClientTimeout(total=5)
RETRY_AFTER_S = 1
CLIENTS_PATH = "/v1/"
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

    def responses(
        self, model: str, inputs: Mapping[str, Any], trace_parent: str = ""
    ) -> AsyncGenerator[list[Mapping[str, Any]], None]:
        """Yield the model's responses, as many together as arrive together.

        Raises:
            InputError: the model refused the request.
            UnavailableError: Triton does not answer, or the answer broke off.
        """


@dataclass(frozen=True)
class Generated:
    """Responses that arrived together. `begins` is the question that they are the first ones to."""

    pieces: Sequence[Piece]
    begins: Question | None = None


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


class Routes:
    """The handlers of one release, or of one combination of a group's releases."""

    def __init__(
        self,
        models: Models,
        names: Sequence[str],
        release: str,
        clock: Callable[[], float] = time.perf_counter,
        others: Sequence[Path] = (),
        browser_origins: Sequence[str] = (),
    ) -> None:
        """`clock` gives seconds from any fixed moment; `others` are the sockets of processes that share the work.

        Pages of `browser_origins` may use the API from a browser.
        """
        self._models, self._names, self._release, self._clock = models, tuple(names), release, clock
        self._others, self._browsers = tuple(others), Browsers(browser_origins)
        self._known: dict[str, tuple[ServedModel, tuple[str, ...]]] = {}
        self._counted, self._grammars = AnswerMetrics(), Grammars()
        self._created = int(time.time())

    def application(self) -> web.Application:
        """The application, which answers every error in OpenAI's form."""
        application = web.Application(
            client_max_size=BODY_BYTES, middlewares=[_logged, self._browsers.middleware(), _errors]
        )
        application.on_cleanup.append(lambda _: self._grammars.close())
        application.on_response_prepare.extend([add_request_id, self._browsers.add_headers])
        application.add_routes(
            [
                web.get("/v1/models", self.models),
                web.get("/v1/models/{name}", self.model),
                web.post("/v1/chat/completions", self.chat),
                web.post("/v1/completions", self.completion),
                web.post("/v1/responses", self.response),
                web.post(MESSAGES, self.message),
                web.post(f"{MESSAGES}/count_tokens", self.count_tokens),
                web.post("/v1/embeddings", self.embeddings),
                web.get("/health", self.health),
                web.get("/ping", self.health),
                # the front sends no client here: only the pod's own containers and the port for metrics
                web.get("/metrics", self.metrics),
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
        """GET /health and /ping: 200 if every model takes requests, else 503."""
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
            documents.append(await self._model(ModelName(name)))
            documents += [await self._model(ModelName(name, adapter)) for adapter in await self._adapters(name)]
        return web.json_response({"object": "list", "data": documents})

    async def model(self, request: web.Request) -> web.Response:
        """GET /v1/models/<name>."""
        name = ModelName.read(request.match_info["name"])
        await self._check(name)
        return web.json_response(await self._model(name))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        asked = read_chat(await read_body(request))
        question = chat_question(asked, await self._served(asked.model))
        return await self._answer(request, asked, [question], self._new_answer(asked, ChatForm))

    async def completion(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        asked = read_completion(await read_body(request))
        questions = completion_questions(asked, await self._served(asked.model))
        return await self._answer(request, asked, questions, self._new_answer(asked, CompletionForm))

    async def response(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/responses, without a store: a chat in other words."""
        asked = read_response(await read_body(request))
        with renamed(NAMES_OF_RESPONSES):
            chat = asked.chat()
            question = chat_question(chat, await self._served(chat.model))
            answer = ResponseAnswer(asked, self._release, one_call=chat.one_call)
            return await self._answer(request, chat, [question], answer)

    async def message(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/messages, Anthropic's API: a chat in other words."""
        asked = read_messages(await read_body(request))
        with renamed(NAMES_OF_MESSAGES):
            chat = asked.chat()
            question = chat_question(chat, await self._served(chat.model))
            answer = MessageAnswer(
                asked.model, request_id(request), one_call=chat.one_call, thinks=asked.wants_thoughts
            )
            return await self._answer(request, chat, [question], answer)

    async def count_tokens(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/messages/count_tokens: the model reads the prompt and answers one token, which is thrown away."""
        asked = read_count(await read_body(request))
        with renamed(NAMES_OF_MESSAGES):
            chat = asked.chat()
            question = chat_question(chat, await self._served(chat.model))
            return await self._answer(request, chat, [question], TokenCount(asked.model, request_id(request)))

    def _new_answer(
        self, asked: ChatRequest | CompletionRequest, form: type[ChatForm] | type[CompletionForm]
    ) -> Answer:
        return Answer(
            form,
            asked.model,
            self._release,
            asked.includes_usage,
            asked.continuous_usage,
            asked.one_call,
            asked.answers_per_prompt,
        )

    async def embeddings(self, _: web.Request) -> web.Response:
        """POST /v1/embeddings: refused, in words that a client of a whole stack understands.

        Raises:
            ApiError: always.
        """
        raise ApiError(
            f"{', '.join(self._names)} generates text and makes no embeddings. Send the request to a server of an "
            "embedding model, such as BAAI/bge-m3 or intfloat/e5-mistral-7b-instruct.",
            param="model",
            code="unsupported_endpoint",
        )

    async def _model(self, name: ModelName) -> dict[str, Any]:
        """A model as /v1/models lists it. `max_model_len` is vLLM's; it is null as long as Triton has not loaded it."""
        try:
            longest = (await self._read(name.base))[0].max_sequence_tokens
        except UnavailableError:
            longest = None
        document = {"id": str(name), "object": "model", "created": self._created, "owned_by": "slipway"}
        document["max_model_len"] = longest
        return document if name.adapter is None else {**document, "root": name.adapter, "parent": name.base}

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

    async def _served(self, model: str) -> ServedModel:
        name = ModelName.read(model)
        await self._check(name)
        return (await self._read(name.base))[0]

    async def _read(self, name: str) -> tuple[ServedModel, tuple[str, ...]]:
        """The model and its adapters by its configuration, read once: the repository of a pod never changes."""
        if name not in self._known:
            config = await self._models.config(name)
            self._known[name] = await self._with_limits(served_model(config)), loras_of(config)
        return self._known[name]

    async def _with_limits(self, model: ServedModel) -> ServedModel:
        """The model with the limits of the one that makes its prompts, where it has none of its own."""
        if model.prompt_model is None or model.max_sequence_tokens is not None:
            return model
        limits = served_model(await self._models.config(model.prompt_model))
        return replace(model, max_input_tokens=limits.max_input_tokens, max_sequence_tokens=limits.max_sequence_tokens)

    async def _answer(
        self,
        request: web.Request,
        asked: ChatRequest | CompletionRequest,
        questions: Sequence[Question],
        answer: AnyAnswer,
    ) -> web.StreamResponse:
        """Generate the answers to the questions, one after another, and send them as one document or stream."""
        own = [question.of_request(request_id(request), trace_parent(request)) for question in questions]
        obeying = [await self._obeying(question) for question in own]
        choices = [question.again(number) for question in obeying for number in range(asked.answers_per_prompt)]
        name = ModelName.read(asked.model)
        try:
            async with aclosing(self._generated(name, choices)) as generated:
                if asked.stream:
                    return await _streamed(request, answer, generated)
                async for each in generated:
                    _take(answer, each)
        except InputError as error:
            raise refusal(
                str(error),
                prompt=asked.prompt_parameter,
                length=asked.length_parameter,
                longest=self._known[name.base][0].max_sequence_tokens,
            ) from error
        return web.Response(body=written(answer.document()), content_type="application/json")

    async def _obeying(self, question: Question) -> Question:
        """The question with the grammar of its schema."""
        if question.schema is None:
            return question
        return question.obeying(await self._grammars.grammar_of(question.schema))

    async def _generated(self, name: ModelName, questions: Sequence[Question]) -> AsyncGenerator[Generated, None]:
        """Yield what the model answers to each question in turn; the first of each says so."""
        for question in questions:
            asked = replace(question, inputs=with_lora(question.inputs, name.adapter))
            begins = True
            async with aclosing(self._timed(name.base, asked)) as pieces:
                async for together in pieces:
                    yield Generated(together, question if begins else None)
                    begins = False

    async def _timed(self, model: str, question: Question) -> AsyncGenerator[list[Piece], None]:
        """Yield what `_pieces` does, and count it. Errors before a request reaches the model are not counted."""
        counted, code, before, has_text = self._counted, CLIENT_LEFT, self._clock(), False
        try:
            async with aclosing(self._pieces(model, question)) as arriving:
                async for together in arriving:
                    now, texts = self._clock(), sum(bool(each.text or each.thought) for each in together)
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
            prompt = await self._prompt(model, question.to_render, question.trace_parent)
            inputs, call_format = with_prompt(inputs, prompt), prompt.call_format
        async with aclosing(self._models.responses(model, inputs, question.trace_parent)) as arrived:
            async for events in arrived:
                pieces = [piece(each, call_format) for each in events]
                reasons = {each.finish_reason for each in pieces if each.finish_reason}
                if CANCELLED in reasons:
                    raise UnavailableError("the model's server ended the answer before it was complete")
                ended = ended or bool(reasons)
                yield pieces
        if not ended:
            raise UnavailableError("the model's server sent no end of the answer")

    async def _prompt(self, model: str, to_render: Mapping[str, Any], span: str) -> Prompt:
        """The prompt that another model makes of the messages.

        Raises:
            InputError: that model refused them.
            UnavailableError: there is no answer.
        """
        renders = self._known[model][0].prompt_model
        assert renders is not None
        found: list[Mapping[str, Any]] = []
        async with aclosing(self._models.responses(renders, to_render, span)) as arrived:
            async for events in arrived:
                found += events
        if not found:
            raise UnavailableError("the model's server sent no prompt")
        return prompt_of(found[0])


async def _streamed(
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


def _take(answer: AnyAnswer, generated: Generated) -> None:
    if generated.begins is not None:
        _begun(answer, generated.begins)
    for piece_of_answer in generated.pieces:
        answer.add(piece_of_answer)


@web.middleware
async def _logged(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The access log of clients' requests: a line for each, when its answer has ended."""
    began, status = time.perf_counter(), CLIENT_LEFT
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        path, seconds = request.rel_url.raw_path, time.perf_counter() - began
        if request.method != HTTPMethod.GET and path.startswith(CLIENTS_PATH):  # others are probes
            log.info("request %s: %s %s %d in %.3f s", request_id(request), request.method, path[:64], status, seconds)


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
        log.exception("request %s: unexpected error", request_id(request))
        refused = ApiError("unexpected error; see the log of the container.", status=HTTPStatus.INTERNAL_SERVER_ERROR)
    retry = {"Retry-After": str(RETRY_AFTER_S)} if refused.status == HTTPStatus.SERVICE_UNAVAILABLE else None
    body = error_document(refused, request_id(request)) if is_anthropics(request) else refused.body
    return web.json_response(body, status=refused.status, headers=retry)


async def _page_of(socket: Path) -> str:
    """The metrics of another process."""
    own = f"http://localhost/metrics?{OWN}=1"
    async with (
        ClientSession(connector=UnixConnector(str(socket)), timeout=PAGE_TIMEOUT) as session,
        session.get(own) as page,
    ):
        return await page.text()
