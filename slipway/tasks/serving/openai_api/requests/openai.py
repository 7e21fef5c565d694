"""Requests of OpenAI's API, read strictly: every parameter is served, asks for nothing, or is refused by its name.

Fields: https://platform.openai.com/docs/api-reference/chat/create and .../completions/create. The parameters that
OpenAI does not have (top_k, min_p, ignore_eos, min_tokens, repetition_penalty, bad_words) are vLLM's.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationError,
    model_validator,
)

from slipway.tasks.contracts.engine.sampling import Sampling, StopWords, Temperature, TextOfAnAnswer
from slipway.tasks.contracts.wire.bounded_json import Bounds, BoundsError, read
from slipway.tasks.serving.openai_api.http.errors import ApiError
from slipway.tasks.serving.openai_api.requests.messages import (
    LIST,
    TEXT,
    Message,
    StreamOptions,
    Strict,
    TextOrList,
    Tool,
    with_arguments,
)
from slipway.tasks.serving.openai_api.requests.neutral import (
    CHAT,
    COMPLETIONS,
    WITHOUT_EFFECT,
    is_neutral,
    neutral_values,
    without_neutral,
    without_nulls,
)
from slipway.tasks.serving.openai_api.requests.tool_choices import with_plain_choice

BODY_BYTES = 16 << 20
BODY = Bounds(chars=BODY_BYTES, depth=80)
"""Deep enough for the deepest schema of a tool."""
SCHEMA = Bounds(chars=1 << 20, depth=80)
"""The bounds of a schema that is written as a text."""
MAX_MESSAGES = 4096
MAX_ALTERNATIVES = 20
MAX_TOOLS = 128
MAX_CHOICES = 128
"""Of one request: answers to each of its prompts. They are made one after another, in one slot of the model."""
DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for /v1/completions. Chat has none: an answer ends by itself, or where the model has no room."""
SEEDS = 2**63
"""A seed below zero stands for the one that has the same lower 63 bits: engines take no negative ones."""
EFFORT = "reasoning_effort"
LIMITS = {name: neutral_values(CHAT)[name] for name in ("max_tokens", "max_completion_tokens")}
"""Values that set no limit."""
FOUND_CHARS = 64
"""Of a value that an error repeats."""

Stop = Annotated[Annotated[TextOfAnAnswer, Tag(TEXT)] | Annotated[StopWords, Tag(LIST)], TextOrList]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(fail_fast=True, min_length=1)]
"""A prompt that the client has tokenized. The model knows its vocabulary."""
IDS = "<tokens>"


def _prompt_kind(value: Any) -> str | None:
    if isinstance(value, list) and value and isinstance(value[0], int):
        return IDS
    return LIST if isinstance(value, list) else TEXT if isinstance(value, str) else None


OnePrompt = Annotated[
    Annotated[TextOfAnAnswer, Tag(TEXT)] | Annotated[TokenIds, Tag(LIST)] | Annotated[TokenIds, Tag(IDS)],
    Discriminator(_prompt_kind),
]
Prompts = Annotated[
    Annotated[TextOfAnAnswer, Tag(TEXT)]
    | Annotated[TokenIds, Tag(IDS)]
    | Annotated[list[OnePrompt], Field(fail_fast=True, min_length=1, max_length=MAX_CHOICES), Tag(LIST)],
    Discriminator(_prompt_kind),
]
AnswerTokens = Annotated[int, Field(ge=1, le=2**31 - 1)]
TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,10}$")]
LogitBias = Annotated[dict[TokenId, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=1024)]


def _read_schema(value: Any) -> Any:
    """A schema that is written as a text, read."""
    try:
        return read(value, SCHEMA) if isinstance(value, str) else value
    except BoundsError as error:
        raise ValueError(f"the schema {error}") from error


GuidedSchema = Annotated[dict[str, JsonValue], BeforeValidator(_read_schema)]


class GuidedDecoding(Strict):
    """What vLLM's clients send for `response_format`; patterns, choices and grammars of other forms are not served."""

    schema_: GuidedSchema = Field(alias="json")


def _with_plain_top_p(asked: Any) -> Any:
    """A `top_p` of 0, which OpenAI's API takes, leaves the likeliest token alone, as a temperature of 0 does."""
    if not isinstance(asked, dict) or isinstance(asked.get("top_p"), bool) or asked.get("top_p") != 0:
        return asked
    return {**{name: each for name, each in asked.items() if name != "top_p"}, "temperature": 0}


class _Request(Sampling):
    """Parameters of both routes. What is not a field here ends up in `model_extra`."""

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())
    route: ClassVar[str]

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: AnswerTokens | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: Stop | None = None
    seed: Annotated[int, Field(ge=-SEEDS, lt=SEEDS)] | None = None
    temperature: Temperature | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    ignore_eos: bool | None = None
    logit_bias: LogitBias | None = None
    response_format: dict[str, JsonValue] | None = None
    guided_json: GuidedSchema | None = None
    structured_outputs: GuidedDecoding | None = None

    _absent = model_validator(mode="before")(without_nulls)
    _greedy = model_validator(mode="before")(_with_plain_top_p)

    @property
    def stop_words(self) -> list[str]:
        """Texts that end the answer and are not part of it."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def answers_per_prompt(self) -> int:
        """How many answers each prompt gets."""
        return self.n or 1

    @property
    def engine_seed(self) -> int | None:
        """The seed as engines take it."""
        return None if self.seed is None else self.seed % SEEDS

    @property
    def continuous_usage(self) -> bool:
        """Whether each event of a stream has the number of tokens so far, where the model says it. vLLM's parameter."""
        return self.includes_usage and self.stream_options is not None and self.stream_options.continuous_usage_stats

    def sampling(self) -> dict[str, Any]:
        """Parameters that only some models take, without those that ask for nothing."""
        penalties = ("presence_penalty", "frequency_penalty", "repetition_penalty")
        names = ("top_p", "top_k", "min_p", "ignore_eos", "min_tokens", *penalties, "bad_words")
        neutral = neutral_values(self.route)
        return {name: value for name in names if not is_neutral(value := getattr(self, name), neutral[name])}

    def unknown(self) -> dict[str, Any]:
        """Parameters that no model takes, without those that ask for nothing."""
        given, neutral = (self.model_extra or {}).items(), neutral_values(self.route)
        return {
            name: value
            for name, value in given
            if name not in WITHOUT_EFFECT and not is_neutral(value, neutral.get(name, ()))
        }


def _unlike(tools: list[Tool]) -> list[Tool]:
    names = [tool.function.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two functions are called {twice!r}. Rename one")
    return tools


def _argument(value: Any) -> Any:
    if not isinstance(value, str | bool | int | float):
        raise ValueError("expected a text, a number, true or false")  # noqa: TRY004 - pydantic reads this class alone
    return value


Tools = Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS), AfterValidator(_unlike)]
TemplateArguments = Annotated[dict[str, Annotated[Any, AfterValidator(_argument)]], BeforeValidator(without_nulls)]

ModelT = TypeVar("ModelT", bound=BaseModel)
RequestT = TypeVar("RequestT", bound=_Request)


class ChatRequest(_Request):
    """POST /v1/chat/completions."""

    route = CHAT
    prompt_parameter: ClassVar[str] = "messages"

    messages: Annotated[
        list[Message], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES), AfterValidator(with_arguments)
    ]
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_ALTERNATIVES)
    tools: Tools | None = None
    tool_choice: str | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: AnswerTokens | None = None
    chat_template_kwargs: TemplateArguments | None = None
    reasoning_effort: Annotated[str, Field(max_length=64)] | None = None

    _choice = model_validator(mode="before")(with_plain_choice)
    _endless = model_validator(mode="before")(partial(without_neutral, values=LIMITS))

    @property
    def answer_tokens(self) -> int | None:
        """The most tokens of an answer; None leaves it to the model."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def length_parameter(self) -> str:
        """What the client called the most tokens of an answer."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    @property
    def template_arguments(self) -> dict[str, Any]:
        """Arguments of the chat template; the model refuses an effort of which its template knows nothing."""
        effort = {} if self.reasoning_effort is None else {EFFORT: self.reasoning_effort}
        return {**effort, **(self.chat_template_kwargs or {})}

    @property
    def offers_tools(self) -> bool:
        """Whether the answer may call tools."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def tool_names(self) -> frozenset[str]:
        """Names of the tools that the answer may call."""
        return frozenset(tool.function.name for tool in self.tools or ()) if self.offers_tools else frozenset()

    @property
    def one_call(self) -> bool:
        """Whether an answer has at most one call of a tool."""
        return self.parallel_tool_calls is False

    @property
    def alternatives(self) -> int | None:
        """How many of the likeliest tokens are reported with each one; None without log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(_Request):
    """POST /v1/completions: the prompt is continued as it is, without a chat template."""

    route = COMPLETIONS
    prompt_parameter: ClassVar[str] = "prompt"
    length_parameter: ClassVar[str] = "max_tokens"
    one_call: ClassVar[bool] = False

    prompt: Prompts
    logprobs: int | None = Field(default=None, ge=0, le=MAX_ALTERNATIVES)
    echo: bool | None = None

    @property
    def alternatives(self) -> int | None:
        """How many of the likeliest tokens are reported with each one; None without log-probabilities."""
        return self.logprobs

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, each a text or the ids of its tokens."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = [number for number in self.prompt if isinstance(number, int)]
        return [ids] if ids else [each for each in self.prompt if not isinstance(each, int)]

    @property
    def answer_tokens(self) -> int:
        """The most tokens of an answer."""
        return DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens


def read_chat(body: bytes) -> ChatRequest:
    """A request for a chat completion.

    Raises:
        ApiError: it is not a valid one; the error names the parameter.
    """
    request = _read(ChatRequest, body)
    if request.top_logprobs and not request.logprobs:
        raise ApiError("top_logprobs needs logprobs: true.", param="top_logprobs")
    if None not in (request.max_tokens, request.max_completion_tokens) and (
        request.max_tokens != request.max_completion_tokens
    ):
        raise ApiError("max_tokens and max_completion_tokens differ; send one of them.", param="max_tokens")
    return request


def read_completion(body: bytes) -> CompletionRequest:
    """A request for a completion.

    Raises:
        ApiError: it is not a valid one; the error names the parameter.
    """
    request = _read(CompletionRequest, body)
    count = len(request.prompts) * request.answers_per_prompt
    if count > MAX_CHOICES:
        raise ApiError(f"prompt and n ask for {count} answers; the limit is {MAX_CHOICES}. Lower n.", param="n")
    return request


def _read(kind: type[RequestT], body: bytes) -> RequestT:
    request = read_request(kind, body)
    if request.stream_options is not None and not request.stream:
        raise ApiError("stream_options needs stream: true.", param="stream_options")
    return request


def read_request(kind: type[ModelT], body: bytes) -> ModelT:
    """The request of any route that a body is.

    Raises:
        ApiError: it is not a valid one; the error names the parameter.
    """
    try:
        return kind.model_validate(_whole_numbers(read(body, BODY)))
    except BoundsError as error:
        raise ApiError(f"the request {error}.") from error
    except ValidationError as error:
        raise wrong_request(error) from error


def _whole_numbers(document: Any) -> Any:
    """The parameters, whole numbers without a fraction: clients in JavaScript, Lua or R write 64.0 for 64."""
    if not isinstance(document, dict):
        return document
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() and abs(value) < SEEDS else value
        for name, value in document.items()
    }


def wrong_request(error: ValidationError) -> ApiError:
    """The first error, at its place: names of members and numbers of items, without the tags of unions."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = [part for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
    found = "" if first["type"] == "missing" else f" Found {str(first['input'])[:FOUND_CHARS]!r}."
    message = MESSAGES.get(first["type"], first["msg"].removeprefix("Value error, "))
    return ApiError(f"{param or 'the request'}: {message}.{found}", param=param or None)


MESSAGES: Mapping[str, str] = {
    "extra_forbidden": "this is not served. Leave it out",
    "union_tag_not_found": "Input should be a text or a list",
}
"""Errors of pydantic that a client would not understand, by type."""
