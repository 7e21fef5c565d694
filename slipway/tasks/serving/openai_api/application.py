"""The routes of OpenAI's API, as an aiohttp application over a Triton in the same pod.

It listens on a Unix socket, behind the pod's front, which closes connections and drains: serving/rendered/front.py.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from aiohttp import ClientSession, ClientTimeout, UnixConnector, web

from slipway.tasks.contracts.api_keys import CLIENT_HEADER
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.wire import exposition
from slipway.tasks.serving.openai_api.answers.anthropic import MessageAnswer, TokenCount
from slipway.tasks.serving.openai_api.answers.openai import Answer, ChatForm, CompletionForm
from slipway.tasks.serving.openai_api.answers.responses import ResponseAnswer
from slipway.tasks.serving.openai_api.generation.catalogue import Catalogue, Models
from slipway.tasks.serving.openai_api.generation.generate import EVERYBODYS, Generation
from slipway.tasks.serving.openai_api.generation.inputs import questions_of
from slipway.tasks.serving.openai_api.generation.lora_models import ModelName
from slipway.tasks.serving.openai_api.generation.turns import Turns
from slipway.tasks.serving.openai_api.http.bodies import read_body
from slipway.tasks.serving.openai_api.http.errors import ApiError, refusal, renamed, unavailable
from slipway.tasks.serving.openai_api.http.request_ids import MESSAGES, add_request_id, request_id, trace_parent
from slipway.tasks.serving.openai_api.middlewares import errors, logged
from slipway.tasks.serving.openai_api.requests.anthropic import RENAMED as NAMES_OF_MESSAGES
from slipway.tasks.serving.openai_api.requests.anthropic import read_count, read_messages
from slipway.tasks.serving.openai_api.requests.openai import (
    BODY_BYTES,
    ChatRequest,
    CompletionRequest,
    read_chat,
    read_completion,
)
from slipway.tasks.serving.openai_api.requests.responses import RENAMED as NAMES_OF_RESPONSES
from slipway.tasks.serving.openai_api.requests.responses import read_response
from slipway.tasks.serving.openai_api.sending import AnyAnswer, document, stream

OWN, PAGE_TIMEOUT = "own", ClientTimeout(total=5)


class Routes:
    """The handlers of one release, or of one combination of a group's releases."""

    def __init__(  # noqa: PLR0913 - what the process was started with
        self,
        models: Models,
        names: Sequence[str],
        release: str,
        clock: Callable[[], float] = time.perf_counter,
        others: Sequence[Path] = (),
        names_clients: bool = False,
        quotas: Mapping[str, int] | None = None,
        turns: Turns = EVERYBODYS,
        *,
        adapters: Path | None = None,
    ) -> None:
        """`clock` gives seconds from any fixed moment; `others` are the sockets of processes that share the work.

        With `names_clients`, the front says whose key a request had; otherwise a header that does so is a stranger's.
        `quotas` are tokens a minute by those names, which take `turns` at the models.
        `adapters` is the folder of those that come and go while the model is live.
        """
        self._models, self._release = models, release
        self._others, self._names_clients = tuple(others), names_clients
        self._catalogue, self._generation = Catalogue(models, names, adapters), Generation(models, clock, quotas, turns)

    def application(self) -> web.Application:
        """The application, which answers every error in OpenAI's form."""
        application = web.Application(client_max_size=BODY_BYTES, middlewares=[logged, errors])
        application.on_cleanup.append(lambda _: self._generation.close())
        application.on_response_prepare.append(add_request_id)
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
        page = exposition.text(self._generation.counted.metrics())
        if OWN not in request.query and self._others:
            page = exposition.summed([page, *[await _page_of(socket) for socket in self._others]])
        return web.Response(text=page, headers={"Content-Type": exposition.CONTENT_TYPE})

    async def health(self, _: web.Request) -> web.Response:
        """GET /health and /ping: 200 if every model takes requests, else 503."""
        waiting = [name for name in self._catalogue.names if not await self._models.is_ready(name)]
        if waiting:
            raise unavailable(f"{', '.join(waiting)} is not ready")
        return web.json_response({"status": "ok"})

    async def live(self, _: web.Request) -> web.Response:
        """GET /health/live: 200 from a process whose loop turns, whatever the models do."""
        return web.json_response({"status": "ok"})

    async def models(self, _: web.Request) -> web.Response:
        """GET /v1/models: the models, and their adapters as further ones."""
        return web.json_response({"object": "list", "data": await self._catalogue.documents()})

    async def model(self, request: web.Request) -> web.Response:
        """GET /v1/models/<name>."""
        name = ModelName.read(request.match_info["name"])
        await self._catalogue.check(name)
        return web.json_response(await self._catalogue.document(name))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        asked = read_chat(await read_body(request))
        return await self._respond(request, asked, self._new_answer(asked, ChatForm))

    async def completion(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        asked = read_completion(await read_body(request))
        return await self._respond(request, asked, self._new_answer(asked, CompletionForm))

    async def response(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/responses, without a store: a chat in other words."""
        asked = read_response(await read_body(request))
        with renamed(NAMES_OF_RESPONSES):
            chat = asked.chat()
            return await self._respond(request, chat, ResponseAnswer(asked, self._release, one_call=chat.one_call))

    async def message(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/messages, Anthropic's API: a chat in other words."""
        asked = read_messages(await read_body(request))
        with renamed(NAMES_OF_MESSAGES):
            chat, number = asked.chat(), request_id(request)
            answer = MessageAnswer(asked.model, number, one_call=chat.one_call, thinks=asked.wants_thoughts)
            return await self._respond(request, chat, answer)

    async def count_tokens(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/messages/count_tokens: the model reads the prompt and answers one token, which is thrown away."""
        asked = read_count(await read_body(request))
        with renamed(NAMES_OF_MESSAGES):
            return await self._respond(request, asked.chat(), TokenCount(asked.model, request_id(request)))

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
            f"{', '.join(self._catalogue.names)} generates text and makes no embeddings. Send the request to a server "
            "of an embedding model, such as BAAI/bge-m3 or intfloat/e5-mistral-7b-instruct.",
            param="model",
            code="unsupported_endpoint",
        )

    async def _respond(
        self, request: web.Request, asked: ChatRequest | CompletionRequest, answer: AnyAnswer
    ) -> web.StreamResponse:
        """Ask the model what the request asks, and send what it answers in the form of the route."""
        client = request.headers.get(CLIENT_HEADER, "") if self._names_clients else ""
        model = await self._catalogue.served(asked.model)
        own = [each.of_request(request_id(request), trace_parent(request)) for each in questions_of(asked, model)]
        try:
            async with aclosing(self._generation.answers(model, own, asked.answers_per_prompt, client)) as generated:
                return await (stream(request, answer, generated) if asked.stream else document(answer, generated))
        except InputError as error:
            raise refusal(
                str(error),
                prompt=asked.prompt_parameter,
                length=asked.length_parameter,
                longest=model.max_sequence_tokens,
            ) from error


async def _page_of(socket: Path) -> str:
    """The metrics of another process."""
    own = f"http://localhost/metrics?{OWN}=1"
    async with (
        ClientSession(connector=UnixConnector(str(socket)), timeout=PAGE_TIMEOUT) as session,
        session.get(own) as page,
    ):
        return await page.text()
