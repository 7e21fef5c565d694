"""Which tools an answer may call, in the one form that is read further on. Pure."""

from collections.abc import Mapping
from typing import Any

from slipway.tasks.serving.openai_api.http.errors import ApiError

ALLOWED = "allowed_tools"
WORDS: Mapping[str, str] = {"none": "none", "auto": "auto", "required": "required", "any": "required"}
"""Mistral's API says `any`; Anthropic's writes a word as {"type": ...}."""


def with_plain_choice(asked: Any) -> Any:
    """A request whose choice is a word or {"type": "function", "function": {"name": ...}}.

    A name may stand beside `type`, as on /v1/responses. `allowed_tools` leaves the tools that it lists, and its mode
    (OpenAI's reference, ChatCompletionAllowedToolChoice and ToolChoiceAllowed).

    Raises:
        ApiError: `allowed_tools` has another form, or names no tool of the request.
    """
    choice = asked.get("tool_choice") if isinstance(asked, Mapping) else None
    word = choice["type"] if isinstance(choice, Mapping) and set(choice) == {"type"} else choice
    if isinstance(word, str) and word in WORDS:
        return {**asked, "tool_choice": WORDS[word]}
    if not isinstance(choice, Mapping):
        return asked
    if choice.get("type") == ALLOWED:
        return _with_allowed(asked, choice)
    if set(choice) == {"type", "name"}:
        return {**asked, "tool_choice": {"type": choice["type"], "function": {"name": choice["name"]}}}
    return asked


def _with_allowed(asked: Mapping[str, Any], choice: Mapping[str, Any]) -> Mapping[str, Any]:
    allowed = choice.get(ALLOWED, choice)
    listed = allowed.get("tools") if isinstance(allowed, Mapping) else None
    if not isinstance(listed, list) or not listed or allowed.get("mode") not in ("auto", "required"):
        raise ApiError(
            f'tool_choice is {str(choice)[:64]!r}; expected "mode": "auto" or "required", and "tools": a list of '
            "functions by name.",
            param="tool_choice",
        )
    tools, names = asked.get("tools"), [_name(each) for each in listed]
    known = [_name(each) for each in tools] if isinstance(tools, list) else []
    if unknown := [name for name in names if name is None or name not in known]:
        raise ApiError(
            f"tool_choice names {str(unknown[0])[:64]!r}, which is no tool of the request.", param="tool_choice"
        )
    kept = [tool for tool, name in zip(tools or (), known, strict=True) if name in names]
    return {**asked, "tools": kept, "tool_choice": allowed["mode"]}


def _name(tool: Any) -> Any:
    """The name of a function, wherever it stands; None where there is none."""
    if not isinstance(tool, Mapping):
        return None
    function = tool.get("function", tool)
    return function.get("name") if isinstance(function, Mapping) else None
