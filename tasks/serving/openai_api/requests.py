"""Requests of OpenAI's API, read strictly: every parameter is served, asks for nothing, or is refused by its name.

Fields: https://platform.openai.com/docs/api-reference/chat/create and .../completions/create. The parameters that
OpenAI does not have (top_k, min_tokens, repetition_penalty, bad_words) are vLLM's.
"""

from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from tasks.contracts.engine.sampling import NEUTRAL as NEUTRAL_SAMPLING
from tasks.contracts.engine.sampling import Sampling, Temperature, TextOfAnAnswer
from tasks.contracts.wire.bounded_json import Bounds, BoundsError, read
from tasks.serving.openai_api.errors import ApiError
from tasks.serving.openai_api.messages import Message, StreamOptions, Tool

BODY_BYTES = 16 << 20
BODY = Bounds(chars=BODY_BYTES, depth=80)
"""Deep enough for the deepest schema of a tool."""
MAX_MESSAGES = 4096
MAX_ALTERNATIVES = 20
MAX_TOOLS = 128
DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default for /v1/completions. Chat has none: an answer ends by itself, or where the model has no room."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    **{name: values for name, values in NEUTRAL_SAMPLING.items() if name not in {"temperature", "stop"}},
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
}
"""Values with which a parameter asks for nothing that the server would not do anyway."""
WITHOUT_EFFECT = ("user", "metadata", "safety_identifier", "prompt_cache_key")
"""Parameters that name the request and do not change an answer."""


class _Request(Sampling):
    """Parameters of both routes. What is not a field here ends up in `model_extra`."""

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1, le=2**31 - 1)
    temperature: Temperature | None = None
    response_format: dict[str, JsonValue] | None = None

    @property
    def stop_words(self) -> list[str]:
        """Texts that end the answer and are not part of it."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self) -> dict[str, Any]:
        """Parameters that only some models take, without those that ask for nothing."""
        penalties = ("presence_penalty", "frequency_penalty", "repetition_penalty")
        values = {name: getattr(self, name) for name in ("top_p", "top_k", "min_tokens", *penalties, "bad_words")}
        return {name: value for name, value in values.items() if not _is_neutral(name, value)}

    def unknown(self) -> dict[str, Any]:
        """Parameters that no model takes, without those that ask for nothing."""
        given = (self.model_extra or {}).items()
        return {name: value for name, value in given if name not in WITHOUT_EFFECT and not _is_neutral(name, value)}


RequestT = TypeVar("RequestT", bound=_Request)


class ChatRequest(_Request):
    """POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_ALTERNATIVES)
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, JsonValue] | None = None
    max_completion_tokens: int | None = Field(default=None, ge=1, le=2**31 - 1)
    chat_template_kwargs: dict[str, str | bool | int | float] | None = None

    @property
    def answer_tokens(self) -> int | None:
        """The most tokens of an answer; None leaves it to the model."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def unknown(self) -> dict[str, Any]:
        """As for every request. A call that is forced is one call anyway."""
        forced = self.tool_choice not in (None, "none", "auto")
        return {key: value for key, value in super().unknown().items() if not (forced and key == "parallel_tool_calls")}

    @property
    def alternatives(self) -> int | None:
        """How many of the likeliest tokens are reported with each one; None without log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(_Request):
    """POST /v1/completions: the prompt is continued as it is, without a chat template."""

    prompt: TextOfAnAnswer | Annotated[list[TextOfAnAnswer], Field(min_length=1, max_length=1)]
    logprobs: int | None = Field(default=None, ge=0, le=MAX_ALTERNATIVES)

    @property
    def alternatives(self) -> int | None:
        """How many of the likeliest tokens are reported with each one; None without log-probabilities."""
        return self.logprobs

    @property
    def text(self) -> str:
        """The prompt."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]

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
    return _read(CompletionRequest, body)


def _read(kind: type[RequestT], body: bytes) -> RequestT:
    try:
        request = kind.model_validate(read(body, BODY))
    except BoundsError as error:
        raise ApiError(f"the request {error}.") from error
    except ValidationError as error:
        raise _wrong(error) from error
    if request.stream_options is not None and not request.stream:
        raise ApiError("stream_options needs stream: true.", param="stream_options")
    return request


def _wrong(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_context=False)[0]
    place = [part for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
    found = "" if first["type"] == "missing" else f" Found {str(first['input'])[:64]!r}."
    return ApiError(f"{param or 'the request'}: {first['msg']}.{found}", param=param or None)


def _is_neutral(name: str, value: Any) -> bool:
    # True equals 1, but asks for something else
    same = (value == each and isinstance(value, bool) == isinstance(each, bool) for each in NEUTRAL.get(name, ()))
    return value is None or any(same)
