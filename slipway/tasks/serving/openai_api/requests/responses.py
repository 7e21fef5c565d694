"""Requests to /v1/responses, read strictly and translated into those to /v1/chat/completions. Pure.

Stateless: nothing is stored, so that a request brings its whole conversation and names no earlier response.
Fields: https://platform.openai.com/docs/api-reference/responses/create.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag, ValidationError, model_validator

from slipway.tasks.serving.openai_api.requests.messages import CACHE_HINTS, LIST, TEXT, FunctionName, Strict, TextOrList
from slipway.tasks.serving.openai_api.requests.neutral import without_neutral
from slipway.tasks.serving.openai_api.requests.openai import MAX_MESSAGES, ChatRequest, read_request, wrong_request

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "max_completion_tokens": "max_output_tokens",
        "response_format": "text.format",
        "reasoning_effort": "reasoning.effort",
    }
)
"""What this route calls a parameter of the other one."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "background": (False,),
        "include": ([], ["reasoning.encrypted_content"]),
        "service_tier": ("auto", "default"),
        "store": (False,),
        "top_logprobs": (0,),
        "truncation": ("disabled",),
    }
)
IGNORED = frozenset(
    {
        *("client_metadata", "metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "user"),
    }
)
"""Parameters that name the request, as on the other routes."""
HOSTED = frozenset(
    {
        *("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
        *("file_search", "code_interpreter", "image_generation"),
    }
)
"""Types of tools that OpenAI's own servers run."""
NAMESPACE, OF_NAMESPACE = "namespace", "__"
"""A type of tools, and what stands between the name of one and that of a function in it."""
OF_ANSWERS = CACHE_HINTS | frozenset({"annotations", "id", "logprobs", "parsed", "parsed_arguments", "phase", "status"})
"""Fields of items and of their parts that an answer has and a request need not, and hints for a cache."""


class Item(Strict):
    """A part of an answer may be sent back as it is."""

    @model_validator(mode="before")
    @classmethod
    def _without_what_answers_have(cls, value: Any) -> Any:
        return without_neutral(value, {}, ignored=OF_ANSWERS)


class Part(Item):
    """A part of a message."""

    type: Literal["input_text", "output_text", "refusal"]
    text: str = ""
    refusal: str = ""


Text = Annotated[Annotated[str, Tag(TEXT)] | Annotated[list[Part], Field(fail_fast=True), Tag(LIST)], TextOrList]


class MessageItem(Item):
    """What somebody said."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Text

    def add_to(self, messages: list[dict[str, Any]]) -> None:
        """Append it as a message of a chat."""
        text = _text(self.content)
        if self.role == "assistant" and messages and _is_thought(messages[-1]):
            messages[-1]["content"] = text
        else:
            messages.append({"role": self.role, "content": text})


class ReasoningPart(Item):
    """A part of what the model thought."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(Item):
    """What the model thought before the next item; a summary stands in for it where there is nothing else.

    `encrypted_content` is of another server, which alone can read it; thoughts of answers here are whole texts.
    """

    type: Literal["reasoning"]
    encrypted_content: str | None = None
    summary: Annotated[list[ReasoningPart], Field(fail_fast=True)] = Field(default_factory=list)
    content: Annotated[list[ReasoningPart], Field(fail_fast=True)] = Field(default_factory=list)

    def add_to(self, messages: list[dict[str, Any]]) -> None:
        """Begin the assistant's next message."""
        thoughts = "".join(part.text for part in self.content or self.summary)
        messages.append({"role": "assistant", "content": "", "reasoning_content": thoughts or None})


def _is_thought(message: Mapping[str, Any]) -> bool:
    return "reasoning_content" in message and not message["content"] and "tool_calls" not in message


class CallItem(Item):
    """A call of a tool that the model made."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None

    def add_to(self, messages: list[dict[str, Any]]) -> None:
        """Add it to the assistant's message before it; what the model said and called is one message of a chat."""
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant"})
        function = {"name": qualified(self.namespace, self.name), "arguments": self.arguments}
        call = {"id": self.call_id, "type": "function", "function": function}
        messages[-1].setdefault("tool_calls", []).append(call)


class OutputItem(Item):
    """What a tool answered; the call says which tool."""

    type: Literal["function_call_output"]
    call_id: str
    output: Text
    namespace: str | None = None

    def add_to(self, messages: list[dict[str, Any]]) -> None:
        """Append it as a message of a chat."""
        messages.append({"role": "tool", "tool_call_id": self.call_id, "content": _text(self.output)})


def _kind(value: Any) -> str:
    """The tag of an item; one of an unknown type is read as a message, whose error names the type."""
    kind = value.get("type") if isinstance(value, dict) else None
    return f"<{kind}>" if kind in ("function_call", "function_call_output", "reasoning") else "<message>"


AnyItem = Annotated[
    Annotated[MessageItem, Tag("<message>")]
    | Annotated[CallItem, Tag("<function_call>")]
    | Annotated[OutputItem, Tag("<function_call_output>")]
    | Annotated[ReasoningItem, Tag("<reasoning>")],
    Discriminator(_kind),
]


class FunctionTool(Strict):
    """A function that a model may call."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_hints(cls, value: Any) -> Any:
        return without_neutral(value, {}, ignored=CACHE_HINTS)


class NamespaceTool(Strict):
    """Functions under a name of their own, as Codex groups those of an MCP server."""

    type: Literal["namespace"]
    name: FunctionName
    description: str | None = None
    tools: Annotated[list[FunctionTool], Field(fail_fast=True)]


def qualified(namespace: str | None, name: str) -> str:
    """What the model calls a function of a namespace."""
    return name if namespace is None else f"{namespace}{OF_NAMESPACE}{name}"


def _kind_of_tool(value: Any) -> str:
    """The tag of a tool; one of an unknown type is read as a function, whose error names the type."""
    return f"<{NAMESPACE if isinstance(value, dict) and value.get('type') == NAMESPACE else 'function'}>"


AnyTool = Annotated[
    Annotated[FunctionTool, Tag("<function>")] | Annotated[NamespaceTool, Tag(f"<{NAMESPACE}>")],
    Discriminator(_kind_of_tool),
]


def _without_hosted(tools: Any) -> Any:
    """Tools without those that OpenAI's servers run: offered beside others, they need not be called."""
    kept = [tool for tool in tools if not (isinstance(tool, dict) and tool.get("type") in HOSTED)]
    return kept or tools


Tools = Annotated[
    list[AnyTool],
    Field(fail_fast=True),
    BeforeValidator(lambda value: _without_hosted(value) if isinstance(value, list) else value),
]


class TextOptions(Strict):
    """What the answer's text is like."""

    format: dict[str, JsonValue] | None = None
    verbosity: Literal["medium"] | None = None


class ResponseStreamOptions(Strict):
    """Padding against observers, which is not served."""

    include_obfuscation: Literal[False] = False


class Reasoning(Strict):
    """How the model thinks. Its thoughts are shown as they are, whatever summary is asked for."""

    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseRequest(Strict):
    """POST /v1/responses."""

    model: str
    input: Annotated[
        Annotated[str, Field(min_length=1), Tag(TEXT)]
        | Annotated[list[AnyItem], Field(fail_fast=True, min_length=1, max_length=MAX_MESSAGES), Tag(LIST)],
        TextOrList,
    ]
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool = False
    stream_options: ResponseStreamOptions | None = None
    text: TextOptions | None = None
    tools: Tools | None = None
    tool_choice: str | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_what_asks_for_nothing(cls, value: Any) -> Any:
        return without_neutral(value, NEUTRAL, ignored=IGNORED)

    def chat(self) -> ChatRequest:
        """The same request to /v1/chat/completions.

        Raises:
            ApiError: that route does not take a value; the parameter is named as this route names it.
        """
        same = ("model", "stream", "temperature", "top_p", "parallel_tool_calls")
        asked: dict[str, Any] = {name: getattr(self, name) for name in same}
        asked |= {"messages": self._messages(), "max_tokens": self.max_output_tokens, "tool_choice": self.tool_choice}
        asked["reasoning_effort"] = self.reasoning.effort if self.reasoning else None
        asked["tools"] = [
            {
                "type": "function",
                "function": {**tool.model_dump(exclude={"type"}), "name": qualified(namespace, tool.name)},
            }
            for namespace, tool in self._functions()
        ]
        asked["response_format"] = _format(self.text.format if self.text else None)
        try:
            return ChatRequest.model_validate(asked)
        except ValidationError as error:
            raise wrong_request(error) from error

    def name_of(self, called: str) -> dict[str, str]:
        """The name of a function, and its namespace, by what the model calls it."""
        for namespace, tool in self._functions():
            if namespace is not None and qualified(namespace, tool.name) == called:
                return {"name": tool.name, "namespace": namespace}
        return {"name": called}

    def _functions(self) -> Iterator[tuple[str | None, FunctionTool]]:
        """The functions of the request, each with its namespace."""
        for tool in self.tools or ():
            if isinstance(tool, NamespaceTool):
                yield from ((tool.name, each) for each in tool.tools)
            else:
                yield None, tool

    def _messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        if self.instructions:
            messages.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*messages, {"role": "user", "content": self.input}]
        for item in self.input:
            item.add_to(messages)
        return messages


def _text(content: str | list[Part]) -> str:
    return content if isinstance(content, str) else "".join(part.text + part.refusal for part in content)


def _format(given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The format as a chat has it: a schema stands one level deeper there."""
    if given is None or given.get("type") != "json_schema":
        return given
    return {"type": "json_schema", "json_schema": {name: value for name, value in given.items() if name != "type"}}


def read_response(body: bytes) -> ResponseRequest:
    """A request for a response.

    Raises:
        ApiError: it is not a valid one; the error names the parameter.
    """
    return read_request(ResponseRequest, body)
