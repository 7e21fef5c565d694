"""What a conversation of OpenAI's API is made of: messages, definitions of tools, and calls of tools."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from tasks.contracts.wire.bounded_json import Bounds, NotJsonError, read

ARGUMENTS = Bounds(chars=1 << 20)
"""Of one call in a conversation."""


class Strict(BaseModel):
    """A part of a request in which nothing unknown may stand."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(Strict):
    """What a stream contains besides the answer."""

    include_usage: bool = False


class TextPart(Strict):
    """A part of a message."""

    type: Literal["text"]
    text: str


FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


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

    def plain(self) -> dict[str, Any]:
        """The tool as chat templates expect it."""
        return {"type": self.type, "function": self.function.model_dump(exclude_none=True, exclude={"strict"})}


def _arguments(text: str) -> str:
    """The text as it is, unless it is JSON beyond its bounds: a model may have written anything."""
    read_arguments(text)
    return text


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
    """A function as a model called it; the arguments are JSON."""

    name: str = Field(min_length=1, max_length=64)
    arguments: Annotated[str, AfterValidator(_arguments)]


class ToolCall(Strict):
    """A call that the model made in an earlier turn."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None

    def plain(self) -> dict[str, Any]:
        """The call as chat templates expect it: arguments are an object, where they are valid."""
        arguments = read_arguments(self.function.arguments)
        return {"id": self.id, "type": self.type, "function": {"name": self.function.name, "arguments": arguments}}


class Message(Strict):
    """One message of a conversation."""

    role: str = Field(min_length=1, max_length=64)
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: None = None

    @model_validator(mode="after")
    def _says_something(self) -> "Message":
        if self.content is None and not self.tool_calls:
            raise ValueError("content may be null only beside tool_calls")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("tool_calls belong to messages of the assistant")
        return self

    @property
    def text(self) -> str:
        """Its content as one text."""
        parts = self.content or ""
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)

    def plain(self) -> dict[str, Any]:
        """The message as chat templates expect it: content is one text."""
        rest = {"name": self.name, "tool_call_id": self.tool_call_id}
        calls = {"tool_calls": [call.plain() for call in self.tool_calls]} if self.tool_calls else {}
        given = {key: value for key, value in rest.items() if value is not None}
        return {"role": self.role, "content": self.text, **given, **calls}
