"""What an answer must look like: the JSON Schema of `response_format`, or of the function that must be called. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from slipway.tasks.contracts.wire.json_schema import SchemaError, compact_schema
from slipway.tasks.serving.openai_api.http.errors import ApiError
from slipway.tasks.serving.openai_api.requests.messages import Tool
from slipway.tasks.serving.openai_api.requests.neutral import without_nulls
from slipway.tasks.serving.openai_api.requests.openai import ChatRequest, CompletionRequest
from slipway.tasks.serving.openai_api.requests.tool_calls import Forced, Reader

ANY_OBJECT = {"type": "object", "additionalProperties": True}
REQUIRED = "required"
DESCRIPTION = {"name", "description", "strict"}
SCHEMA_IN: Mapping[str, tuple[str, ...]] = {
    "json_schema": ("schema",),
    "json_object": ("schema", "value"),
    "json": ("value",),
}
"""The member that holds a format's schema, by the format's type. OpenAI's is `json_schema`; llama.cpp's documentation
has the schema one level above, or in a `json_object`, and that of text-generation-inference in `value`."""


@dataclass(frozen=True)
class Schema:
    """A JSON Schema of a request, as compact text.

    Attributes:
        text: the schema.
        name: what errors call it.
        param: the parameter that it came in.
    """

    text: str
    name: str
    param: str

    def refused(self, why: str) -> ApiError:
        """The error about it; `why` is a sentence."""
        return ApiError(f"{self.name}: {why}", param=self.param, code="invalid_json_schema")


@dataclass(frozen=True)
class AnswerFormat:
    """What an answer must be.

    Attributes:
        schema: what it obeys, which nobody has translated yet; None where anything may be answered.
        new_reader: makes what reads the call that the request forces; None where the answer may be anything.
    """

    schema: Schema | None = None
    new_reader: Callable[[], Reader] | None = None


def answer_format(request: ChatRequest | CompletionRequest) -> AnswerFormat:
    """What the answer to a request must be.

    Raises:
        ApiError: the response's format or the choice of a tool is wrong, a schema is too large, or a format and tools
            are given.
    """
    wanted = _wanted_schema(request)
    if isinstance(request, CompletionRequest):
        return AnswerFormat(wanted)
    forced = forced_tools(request)
    if wanted and request.offers_tools:
        raise ApiError(
            f"{wanted.param} and tools exclude each other: a schema is enforced from the answer's first token, so that "
            "no tool could be called. Send one of them, or tool_choice: none.",
            param=wanted.param,
        )
    if not forced:
        return AnswerFormat(wanted)
    if request.tool_choice == REQUIRED:
        return AnswerFormat(_schema(_one_call(forced), "tools", "tools"), partial(Forced, None))
    function = forced[0].function
    schema = _schema(function.parameters or ANY_OBJECT, f"tools: {function.name}", "tools")
    return AnswerFormat(schema, partial(Forced, function.name))


def forced_tools(request: ChatRequest) -> tuple[Tool, ...]:
    """The tools of which one must be called; none where the model decides.

    Raises:
        ApiError: the choice is not one of OpenAI's, or names no tool of the request.
    """
    choice, tools = request.tool_choice, tuple(request.tools or ())
    if choice in (None, "none", "auto"):
        return ()
    if choice == REQUIRED and tools:
        return tools
    name = _named(choice) if isinstance(choice, Mapping) else None
    found = tuple(tool for tool in tools if name is not None and tool.function.name == name)
    if not found:
        raise ApiError(
            f"tool_choice is {str(choice)[:64]!r}; expected none, auto, required, or "
            '{"type": "function", "function": {"name": ...}} with the name of one of tools.',
            param="tool_choice",
        )
    return found


def _named(choice: Mapping[str, Any]) -> Any:
    given = without_nulls(choice)
    function = given.get("function")
    whole = given.get("type") == "function" and isinstance(function, Mapping) and set(given) == {"type", "function"}
    return function.get("name") if whole and isinstance(function, Mapping) else None


def _one_call(tools: tuple[Tool, ...]) -> dict[str, Any]:
    """The schema of {"name": ..., "arguments": {...}} for one of the tools; definitions move to its top."""
    calls: list[Any] = []
    definitions: dict[str, dict[str, Any]] = {}
    for tool in tools:
        parameters: dict[str, Any] = dict(tool.function.parameters or ANY_OBJECT)
        for group in ("$defs", "definitions"):
            found = parameters.pop(group, {})
            if not isinstance(found, dict):
                raise ApiError(
                    f"tools: {group} of {tool.function.name} is {str(found)[:64]!r}; expected an object.",
                    param="tools",
                    code="invalid_json_schema",
                )
            for name, definition in found.items():
                if definitions.setdefault(group, {}).setdefault(name, definition) != definition:
                    raise ApiError(f"tools: two functions define {name[:64]!r} differently. Rename one.", param="tools")
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.function.name}, "arguments": parameters},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    return {"anyOf": calls, **definitions}


def _wanted_schema(request: ChatRequest | CompletionRequest) -> Schema | None:
    """The schema of the only parameter that has one: OpenAI's, or one of vLLM's older and newer ones.

    Raises:
        ApiError: the format is wrong, a schema is too large, or several are given.
    """
    guided = request.structured_outputs.schema_ if request.structured_outputs else None
    given = {"guided_json": request.guided_json, "structured_outputs": guided}
    found = [_schema(schema, name, name) for name, schema in given.items() if schema is not None]
    found += [each for each in [_format_schema(request.response_format)] if each]
    if len(found) > 1:
        raise ApiError(
            f"{found[0].param} and {found[1].param} both say what the answer obeys. Send one of them.",
            param=found[0].param,
        )
    return found[0] if found else None


def _format_schema(given: Mapping[str, Any] | None) -> Schema | None:
    wanted = without_nulls(given)
    if wanted is None or wanted == {"type": "text"}:
        return None
    if wanted == {"type": "json_object"}:
        return _schema(ANY_OBJECT, "response_format", "response_format")
    described = {name: each for name, each in wanted.items() if name not in {"type", *DESCRIPTION}}
    place = "response_format"
    if wanted.get("type") == "json_schema" and set(described) == {"json_schema"}:
        inner, place = without_nulls(described["json_schema"]), f"{place}.json_schema"
        described = (
            {name: each for name, each in inner.items() if name not in DESCRIPTION} if isinstance(inner, dict) else {}
        )
    for name in SCHEMA_IN.get(str(wanted.get("type")), ()):
        if set(described) == {name} and isinstance(described[name], Mapping):
            return _schema(described[name], f"{place}.{name}", "response_format")
    raise ApiError(
        'response_format is wrong; expected {"type": "text"}, {"type": "json_object"}, or {"type": "json_schema", '
        '"json_schema": {"name": ..., "schema": {...}}}.',
        param="response_format",
    )


def _schema(schema: Any, name: str, param: str) -> Schema:
    try:
        return Schema(compact_schema(schema), name, param)
    except SchemaError as error:
        raise Schema("", name, param).refused(str(error)) from error
