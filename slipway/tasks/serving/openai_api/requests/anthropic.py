"""Requests to Anthropic's /v1/messages, read strictly and translated into those to /v1/chat/completions. Pure.

Stateless, as that API is: a request brings its whole conversation. Fields: https://docs.anthropic.com/en/api/messages.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Tag, ValidationError, model_validator

from slipway.tasks.serving.openai_api.http.errors import ApiError
from slipway.tasks.serving.openai_api.requests.messages import LIST, TEXT, FunctionName, Strict, TextOrList
from slipway.tasks.serving.openai_api.requests.neutral import without_neutral
from slipway.tasks.serving.openai_api.requests.openai import (
    MAX_MESSAGES,
    MAX_TOOLS,
    AnswerTokens,
    ChatRequest,
    read_request,
    wrong_request,
)

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "stop": "stop_sequences",
        "response_format": "output_config.format",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    }
)
"""What this route calls a parameter of the other one."""
KEEPS_ALL = {"type": "clear_thinking_20251015", "keep": "all"}
"""An edit that removes no thoughts from the conversation, as Claude Code sends it."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "betas": ([],),
        "context_management": ({}, {"edits": []}, {"edits": [KEEPS_ALL]}),
        "fallbacks": ([],),
        "mcp_servers": ([],),
        "service_tier": ("auto", "standard_only"),
        "speed": ("standard",),
    }
)
IGNORED = frozenset({"cache_control", "diagnostics", "metadata", "user_profile_id", "workspace_id"})
"""Parameters that name the request or say what to cache: no answer depends on them."""
OF_BLOCKS: Mapping[str, tuple[Any, ...]] = MappingProxyType({"citations": ([],), "caller": ({"type": "direct"},)})
OF_CLIENTS = frozenset({"parsed_output"})
"""Fields that Anthropic's package adds to blocks for its own use: `parse` repeats the text as an object."""
OF_TOOLS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "allowed_callers": (["direct"],),
        "defer_loading": (False,),
        "eager_input_streaming": (False,),
        "input_examples": ([],),
    }
)
ERROR_RESULT = "Error: "
"""What a failed tool's result begins with: chat templates have no other word for it."""


class Block(Strict):
    """A part of a message; one of an answer may be sent back as it is."""

    @model_validator(mode="before")
    @classmethod
    def _without_what_says_nothing(cls, value: Any) -> Any:
        return without_neutral(value, OF_BLOCKS, ignored=IGNORED | OF_CLIENTS)


class TextBlock(Block):
    """What somebody said."""

    type: Literal["text"]
    text: str


Text = Annotated[Annotated[str, Tag(TEXT)] | Annotated[list[TextBlock], Field(fail_fast=True), Tag(LIST)], TextOrList]


class ThinkingBlock(Block):
    """How the model came to its answer. The signature is of whoever served the model, and is not looked at."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class ToolUseBlock(Block):
    """A call of a tool that the model made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, JsonValue]

    def call(self) -> dict[str, Any]:
        """The call as a chat has it."""
        function = {"name": self.name, "arguments": self.input}
        return {"id": self.id, "type": "function", "function": function}


class ToolResultBlock(Block):
    """What a tool answered."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Text = ""
    is_error: bool = False

    def message(self) -> dict[str, Any]:
        """The result as a message of a chat."""
        content = (ERROR_RESULT if self.is_error else "") + _text(self.content)
        return {"role": "tool", "tool_call_id": self.tool_use_id, "content": content}


BLOCKS = {
    "thinking": ThinkingBlock,
    "tool_use": ToolUseBlock,
    "tool_result": ToolResultBlock,
}


def _kind(value: Any) -> str:
    """The tag of a block; one of an unknown type is read as text, whose error names the type."""
    kind = value.get("type") if isinstance(value, dict) else None
    return f"<{kind}>" if isinstance(kind, str) and kind in BLOCKS else "<block>"


AnyBlock = Annotated[
    Annotated[TextBlock, Tag("<block>")]
    | Annotated[ThinkingBlock, Tag("<thinking>")]
    | Annotated[ToolUseBlock, Tag("<tool_use>")]
    | Annotated[ToolResultBlock, Tag("<tool_result>")],
    Discriminator(_kind),
]


class Turn(Strict):
    """A message of the conversation, which may become several of a chat."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[
        Annotated[str, Tag(TEXT)] | Annotated[list[AnyBlock], Field(fail_fast=True), Tag(LIST)], TextOrList
    ]

    @model_validator(mode="after")
    def _has_the_blocks_of_its_role(self) -> "Turn":
        for block in self._blocks:
            role = {"thinking": "assistant", "tool_use": "assistant", "tool_result": "user"}.get(block.type)
            if role not in (None, self.role):
                raise ValueError(f"a block of type {block.type} belongs to messages of the {role}")
        return self

    @property
    def _blocks(self) -> list[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock]:
        return [] if isinstance(self.content, str) else self.content

    def messages(self) -> Iterator[dict[str, Any]]:
        """The messages of a chat that say the same, results of tools in their order."""
        if isinstance(self.content, str):
            yield {"role": self.role, "content": self.content}
        elif self.role == "assistant":
            yield self._said()
        else:
            yield from self._heard()

    def _said(self) -> dict[str, Any]:
        calls = [block.call() for block in self._blocks if isinstance(block, ToolUseBlock)]
        thoughts = "".join(block.thinking for block in self._blocks if isinstance(block, ThinkingBlock))
        text = "".join(block.text for block in self._blocks if isinstance(block, TextBlock))
        return {
            "role": self.role,
            "content": text or (None if calls else ""),
            "reasoning_content": thoughts or None,
            "tool_calls": calls or None,
        }

    def _heard(self) -> Iterator[dict[str, Any]]:
        texts: list[str] = []
        for block in self._blocks:
            if isinstance(block, TextBlock):
                texts.append(block.text)
            elif isinstance(block, ToolResultBlock):
                if texts:
                    yield {"role": self.role, "content": "".join(texts)}
                    texts = []
                yield block.message()
        if texts:
            yield {"role": self.role, "content": "".join(texts)}


class CustomTool(Strict):
    """A tool of the client; those that Anthropic's servers run are not served."""

    type: Literal["custom"] = "custom"
    name: FunctionName
    description: str | None = None
    input_schema: dict[str, JsonValue]
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_what_asks_for_nothing(cls, value: Any) -> Any:
        return without_neutral(value, OF_TOOLS, ignored=IGNORED)

    def function(self) -> dict[str, Any]:
        """The tool as a chat has it."""
        described = {"name": self.name, "description": self.description, "strict": self.strict}
        return {"type": "function", "function": {**described, "parameters": self.input_schema}}


class ToolChoice(Strict):
    """Which tools the model must call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    def choice(self) -> Any:
        """The choice as a chat has it."""
        if self.type == "tool":
            return {"type": "function", "function": {"name": self.name}}
        return {"any": "required"}.get(self.type, self.type)


class OutputFormat(Strict):
    """A JSON Schema that the answer obeys."""

    type: Literal["json_schema"]
    schema_: dict[str, JsonValue] = Field(alias="schema")


class OutputConfig(Strict):
    """What the answer is like. `high` is Anthropic's own default of the effort."""

    effort: Literal["high"] = "high"
    format: OutputFormat | None = None


class Thinking(Strict):
    """Whether the client wants to see thoughts. Whether a model has some is decided by its chat template."""

    type: Literal["adaptive", "disabled"]
    display: Literal["summarized", "omitted"] = "summarized"


class CountRequest(Strict):
    """POST /v1/messages/count_tokens: the part of a request that becomes the prompt."""

    model: str
    messages: Annotated[list[Turn], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES)]
    system: Text | None = None
    output_config: OutputConfig | None = None
    tools: Annotated[list[CustomTool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None

    @property
    def wants_thoughts(self) -> bool:
        """Whether the answer shows what the model thought before it."""
        return self.thinking is not None and (self.thinking.type, self.thinking.display) == ("adaptive", "summarized")

    @model_validator(mode="before")
    @classmethod
    def _without_what_asks_for_nothing(cls, value: Any) -> Any:
        return without_neutral(value, NEUTRAL, ignored=IGNORED)

    def chat(self) -> ChatRequest:
        """The same request to /v1/chat/completions.

        Raises:
            ApiError: that route does not take a value; the parameter is named as this route names it.
        """
        self._check()
        try:
            return ChatRequest.model_validate({"model": self.model, "messages": self._messages(), **self._parameters()})
        except ValidationError as error:
            raise wrong_request(error) from error

    def _check(self) -> None:
        if self.messages[-1].role == "assistant":
            raise ApiError(
                "messages: the last one is the assistant's; expected one of the user. An answer cannot be begun by the "
                "client.",
                param="messages",
            )
        choice, names = self.tool_choice, [tool.name for tool in self.tools or ()]
        forced = {"any": bool(names), "tool": choice is not None and choice.name in names}
        if choice is not None and not forced.get(choice.type, True):
            raise ApiError(
                f"tool_choice: {choice.type} needs a tool of the request; found {str(choice.name)[:64]!r}.",
                param="tool_choice",
            )

    def _parameters(self) -> dict[str, Any]:
        """Parameters of the chat, beside its messages. One token is the shortest answer, and enough to count.

        A call that is forced makes no other prompt.
        """
        is_without = self.tool_choice is not None and self.tool_choice.type == "none"
        return {"max_tokens": 1, "tools": [] if is_without else self._functions()}

    def _functions(self) -> list[dict[str, Any]]:
        return [tool.function() for tool in self.tools or ()]

    def _messages(self) -> list[dict[str, Any]]:
        system = [{"role": "system", "content": _text(self.system)}] if self.system else []
        return [*system, *(message for turn in self.messages for message in turn.messages())]


class MessagesRequest(CountRequest):
    """POST /v1/messages."""

    max_tokens: AnswerTokens
    stop_sequences: Annotated[list[str], Field(fail_fast=True)] | None = None
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None

    def _parameters(self) -> dict[str, Any]:
        same = ("max_tokens", "stream", "temperature", "top_p", "top_k")
        given = {name: getattr(self, name) for name in same}
        given |= {"stop": self.stop_sequences, "tools": self._functions()}
        if self.tool_choice is not None:
            given["tool_choice"] = self.tool_choice.choice()
            given["parallel_tool_calls"] = not self.tool_choice.disable_parallel_tool_use
        wanted = self.output_config.format if self.output_config else None
        if wanted is not None:
            schema = {"name": "answer", "schema": wanted.schema_}
            given["response_format"] = {"type": "json_schema", "json_schema": schema}
        return given


def _text(content: str | list[TextBlock]) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)


def read_messages(body: bytes) -> MessagesRequest:
    """A request for a message.

    Raises:
        ApiError: it is not a valid one; the error names the parameter.
    """
    return read_request(MessagesRequest, body)


def read_count(body: bytes) -> CountRequest:
    """A request for the number of a prompt's tokens.

    Raises:
        ApiError: it is not a valid one; the error names the parameter.
    """
    return read_request(CountRequest, body)
