"""What a conversation of OpenAI's API is made of: messages, definitions of tools, and calls of tools.

Null stands for an absent member everywhere. A message may be an answer that a client has kept, so the fields of answers
are read too: those of OpenAI's API and what the client libraries add to them.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    field_validator,
    model_validator,
)

from slipway.tasks.contracts.wire.bounded_json import Bounds, BoundsError, NotJsonError, check, has_more, read
from slipway.tasks.serving.openai_api.http.errors import ApiError
from slipway.tasks.serving.openai_api.requests.neutral import without_neutral, without_nulls

ARGUMENTS = Bounds(chars=1 << 20, repeated_names=True)
"""The bounds of one call's arguments; those of all calls in a conversation have as many values together at most."""


TEXT, LIST = "<text>", "<list>"
"""Tags of a union's branches. They are not names of fields, so that no error's place contains them."""


def _branch(value: Any) -> str | None:
    if isinstance(value, list):
        return LIST
    return TEXT if isinstance(value, str) else None


TextOrList = Discriminator(_branch)
"""Tells `str | list[...]` apart before it is validated: an error then names the item that is wrong."""

ANSWER_FIELDS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "annotations": ([],),  # openai, ChatCompletionMessage
        "audio": (),
        "function_call": (),
        "images": ([],),  # litellm, types.utils.Message
        "thinking_blocks": ([],),
        "reasoning_items": ([],),
        "reasoning_details": ([],),  # OpenRouter
    }
)
"""Fields of an answer's message that say nothing at these values, and are refused at others."""
OF_CLIENTS = frozenset({"id", "parsed", "provider_specific_fields"})
"""Fields that client libraries add for their own use: openai's `parse` repeats the content as an object, and litellm
keeps what its provider sent. An `id` is a client's own name of the message."""
CACHE_HINTS = frozenset({"cache_control"})
"""Where a prompt may be cached up to, in Anthropic's words, which LiteLLM's clients send: no answer depends on it."""
OF_CLIENTS_IN_CALLS = frozenset({"parsed_arguments", "provider_specific_fields"})


class Strict(BaseModel):
    """A part of a request in which nothing unknown may stand."""

    model_config = ConfigDict(extra="forbid", strict=True)

    _absent = model_validator(mode="before")(without_nulls)


class StreamOptions(Strict):
    """What a stream contains besides the answer.

    `include_obfuscation` is OpenAI's: padding that hides the length of tokens, which is not served.
    """

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Literal[False] = False


def _without(names: frozenset[str]) -> BeforeValidator:
    """Leaves members out before an object is validated."""

    def left(value: Any) -> Any:
        return {key: each for key, each in value.items() if key not in names} if isinstance(value, dict) else value

    return BeforeValidator(left)


class ContentPart(Strict):
    """A part of a message: text, or the text with which an assistant refused."""

    type: Literal["text", "refusal"]
    text: str | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def _has_its_text(self) -> "ContentPart":
        if [self.text is not None, self.refusal is not None] != [self.type == "text", self.type == "refusal"]:
            raise ValueError(f"a part of type {self.type} needs {self.type}, and nothing else")
        return self

    @property
    def words(self) -> str:
        """What the part says."""
        return self.text or self.refusal or ""


Part = Annotated[ContentPart, _without(CACHE_HINTS)]
Content = Annotated[Annotated[str, Tag(TEXT)] | Annotated[list[Part], Field(fail_fast=True), Tag(LIST)], TextOrList]


FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
"""OpenAI's names have 64 characters, Anthropic's 128."""


class Function(Strict):
    """A function that a model may call. Its parameters are a JSON Schema."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class Tool(Strict):
    """A tool; functions are the only ones."""

    type: Literal["function"]
    function: Function

    @model_validator(mode="before")
    @classmethod
    def _without_hints(cls, value: Any) -> Any:
        return without_neutral(value, {}, ignored=CACHE_HINTS)

    def plain(self) -> dict[str, Any]:
        """The tool as chat templates expect it."""
        return {"type": self.type, "function": self.function.model_dump(exclude_none=True, exclude={"strict"})}


def read_arguments(text: str) -> Any:
    """The arguments of a call; the text itself where it is not JSON.

    Raises:
        BoundsError: they are JSON that a chat template must not get.
    """
    try:
        return read(text or "{}", ARGUMENTS)
    except NotJsonError:
        return text


class CalledFunction(Strict):
    """A function as a model called it; the arguments are JSON, or what a client or `with_arguments` read of it."""

    name: str = Field(min_length=1, max_length=128)
    arguments: Any = ""

    @field_validator("arguments")
    @classmethod
    def _is_text_or_object(cls, value: Any) -> Any:
        if not isinstance(value, str | dict):
            raise ValueError("expected a text or an object")  # noqa: TRY004 - pydantic reads this class alone
        return value

    def read(self) -> None:
        """Read the arguments.

        Raises:
            BoundsError: as `read_arguments`.
        """
        if isinstance(self.arguments, str):
            self.arguments = read_arguments(self.arguments)
        else:
            check(self.arguments, ARGUMENTS)


class ToolCall(Strict):
    """A call that the model made in an earlier turn."""

    id: str
    type: Literal["function"] = "function"
    function: Annotated[CalledFunction, _without(OF_CLIENTS_IN_CALLS)]
    index: int | None = None

    def plain(self) -> dict[str, Any]:
        """The call as chat templates expect it: arguments are an object, where they are valid."""
        function = {"name": self.function.name, "arguments": self.function.arguments}
        return {"id": self.id, "type": self.type, "function": function}


class Message(Strict):
    """One message of a conversation; `reasoning` is vLLM's newer name of `reasoning_content`."""

    role: str = Field(min_length=1, max_length=64)
    content: Content | None = None
    name: str | None = None
    tool_calls: Annotated[list[Annotated[ToolCall, _without(OF_CLIENTS_IN_CALLS)]], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_what_says_nothing(cls, value: Any) -> Any:
        return without_neutral(value, ANSWER_FIELDS, ignored=OF_CLIENTS | CACHE_HINTS)

    @model_validator(mode="after")
    def _says_something(self) -> "Message":
        if self.content is None and self.role != "assistant":
            raise ValueError("content may be null only in messages of the assistant")
        if (self.tool_calls or self.refusal or self.thoughts) and self.role != "assistant":
            raise ValueError("tool_calls, refusal and reasoning_content belong to messages of the assistant")
        return self

    @property
    def text(self) -> str:
        """What it says, as one text: a refusal is said too."""
        content = self.content or ""
        said = content if isinstance(content, str) else "".join(part.words for part in content)
        return said + (self.refusal or "")

    @property
    def thoughts(self) -> str:
        """How the assistant came to its answer, where a client kept that apart."""
        return self.reasoning_content or self.reasoning or ""

    def plain(self) -> dict[str, Any]:
        """The message as chat templates expect it: content is one text."""
        rest = {"name": self.name, "tool_call_id": self.tool_call_id, "reasoning_content": self.thoughts or None}
        calls = {"tool_calls": [call.plain() for call in self.tool_calls]} if self.tool_calls else {}
        given = {key: value for key, value in rest.items() if value is not None}
        return {"role": self.role, "content": self.text, **given, **calls}


def with_arguments(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages of a conversation, whose calls have their arguments read.

    Raises:
        ApiError: arguments are beyond their bounds; those of all calls are counted before any are read.
    """
    calls = {
        f"messages[{number}].tool_calls[{index}].function.arguments": call.function
        for number, message in enumerate(messages)
        for index, call in enumerate(message.tool_calls or ())
    }
    texts = [function.arguments for function in calls.values() if isinstance(function.arguments, str)]
    if has_more(texts, ARGUMENTS.values):
        raise ApiError(
            f"messages: the arguments of all calls together have more than {ARGUMENTS.values} values. Leave out "
            "earlier calls.",
            param="messages",
        )
    for place, function in calls.items():
        try:
            function.read()
        except BoundsError as error:
            raise ApiError(f"{place}: {error}.", param=place) from error
    return messages


def plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages of a conversation as chat templates expect them.

    A tool's result names the function, which some templates want and most clients leave to the call's id.
    """
    names: dict[str, str] = {}
    documents: list[dict[str, Any]] = []
    for message in messages:
        names |= {call.id: call.function.name for call in message.tool_calls or ()}
        name = names.get(message.tool_call_id or "") if message.role == "tool" else None
        documents.append(({} if name is None else {"name": name}) | message.plain())
    return documents
