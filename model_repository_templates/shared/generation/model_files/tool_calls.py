"""How a model writes its calls of tools, read from the chat template that it was trained with. Computes only.

The names are those of vLLM's tool parsers (vllm/tool_parsers). Answers are parsed beside Triton:
slipway/tasks/serving/openai_api/requests/tool_calls.py.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from generation.requests.question import RefusedError

NO_TOOLS = "none"
"""Stands for a request without tools."""
HERMES, LLAMA, MISTRAL, UNKNOWN = "hermes", "llama3_json", "mistral", ""
MARKS = (("<tool_call>", HERMES), ("[TOOL_CALLS]", MISTRAL), ("<|python_tag|>", LLAMA), ('"parameters": ', LLAMA))
"""What only templates of a format contain, the surest first. Hermes, Qwen 2.5 and Qwen 3 are of the first."""
OTHER_MARKS = ("<function=", "<|tool_call_begin|>", "tool\u2581calls\u2581begin")
"""These marks belong to formats that look alike and are not read, such as those of Qwen3-Coder and DeepSeek."""


def format_of(template: str) -> str:
    """The format of a chat template; empty if it is not one of those."""
    if any(mark in template for mark in OTHER_MARKS):
        return UNKNOWN
    return next((name for mark, name in MARKS if mark in template), UNKNOWN)


def check_tools(template: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what a chat template would ignore. OpenVINO GenAI would write a prompt of its own in its place.

    Raises:
        RefusedError: the request has tools, or calls of them, and the template has no word of such.
    """
    if tools and not re.search(r"\btools\b", template):
        raise RefusedError(f"the chat template of this model ignores tools. {INSTEAD}")
    if any(message.get("tool_calls") for message in messages) and "tool_calls" not in template:
        raise RefusedError(f"the chat template of this model ignores tool_calls. {INSTEAD}")


INSTEAD = "Leave them out, or write them into the text of a message."
