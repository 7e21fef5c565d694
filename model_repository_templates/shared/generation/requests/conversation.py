"""The prompt of a request: a question, a conversation, or a prompt already, as text or tokens. Computes only."""

from collections.abc import Mapping, Sequence
from typing import Any

from generation.bounded_json import Bounds, BoundsError, read
from generation.requests.question import Question, RefusedError
from generation.requests.template_arguments import NO_TEMPLATE
from generation.runtime import Tokenizer

MESSAGES, TOOLS, PROMPT_IDS, REASONING = "messages", "tools", "prompt_ids", "reasoning_content"
MAX_MESSAGES = 4096
MAX_TOOLS, MAX_TOOL_CHARS = 128, 65_536
MESSAGE_BOUNDS, TOOL_BOUNDS = Bounds(chars=16 << 20), Bounds(chars=MAX_TOOL_CHARS, depth=80)
"""Levels of tools are those of schemas."""
NO_MESSAGES = (
    "this model applies no chat template, so it takes no messages: its checkpoint has none, or the release's "
    "engine.options.chat_template is none. Send a prompt in place of messages; OpenAI's API takes one at "
    "/v1/completions."
)


def read_messages(text: str) -> tuple[Mapping[str, Any], ...]:
    """The messages of a conversation from their JSON, each with a role and a text, and with tool_calls if it has some.

    Raises:
        RefusedError: it is not a list of such objects, or the list is empty.
    """
    found = _list(MESSAGES, text, "message", MESSAGE_BOUNDS)
    if len(found) > MAX_MESSAGES:
        raise RefusedError(f"{MESSAGES} has {len(found)} messages; the limit is {MAX_MESSAGES}.")
    for number, message in enumerate(found):
        if not isinstance(message, dict) or not all(isinstance(text, str) for text in _texts(message)):
            raise RefusedError(
                f"{MESSAGES}[{number}] is wrong; expected an object with texts for role and content, and for "
                f"{REASONING} if it has some."
            )
    return found


def _texts(message: Mapping[str, Any]) -> list[Any]:
    return [message.get("role"), message.get("content"), message.get(REASONING, "")]


def read_tools(text: str) -> tuple[Mapping[str, Any], ...]:
    """Definitions of functions from their JSON: {"type": "function", "function": {"name": ...}}.

    Raises:
        RefusedError: it is not a list of such objects, the list is empty or too long, or a name occurs twice.
    """
    found = _list(TOOLS, text, "tool", TOOL_BOUNDS)
    names = [tool["function"].get("name") for tool in found if isinstance(tool, dict) and _is_function(tool)]
    if len(names) < len(found) or not all(isinstance(name, str) and name for name in names):
        raise RefusedError(f'{TOOLS} has a tool that is not {{"type": "function", "function": {{"name": ...}}}}.')
    if len(names) > MAX_TOOLS or len(set(names)) < len(names):
        raise RefusedError(f"{TOOLS} has {len(names)} functions; expected at most {MAX_TOOLS}, of different names.")
    return found


def _is_function(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") == "function" and isinstance(tool.get("function"), dict)


def _list(name: str, text: str, item: str, bounds: Bounds) -> tuple[Any, ...]:
    try:
        found = read(text, bounds)
    except BoundsError as error:
        raise RefusedError(f"{name} {error}. Send a list of objects.") from error
    if not isinstance(found, list) or not found:
        raise RefusedError(f"{name} is {text[:64]}; expected a list of at least one {item}.")
    return tuple(found)


def prompt_of(question: Question, tokenizer: Tokenizer) -> Sequence[int]:
    """Ids of the request's prompt.

    Raises:
        RefusedError: the chat template does not take the messages or the question, there is none, or the vocabulary
            lacks a token that the client names.
    """
    _check_within("logit_bias", [token for token, _ in question.controls.logit_bias], tokenizer.vocabulary_size)
    if question.prompt_ids:
        _check_within("the prompt", question.prompt_ids, tokenizer.vocabulary_size)
        return question.prompt_ids
    if question.messages:
        return tokenizer.encode_messages(question.messages, question.template_arguments, question.tools)
    if question.apply_chat_template is not False:
        return tokenizer.encode(question.text, question.template_arguments)
    if question.template_arguments:
        raise RefusedError(NO_TEMPLATE)
    return tokenizer.encode_prompt(question.text)


def _check_within(name: str, ids: Sequence[int], vocabulary_size: int) -> None:
    """An engine would look up any id, even outside of its tables."""
    wrong = next((number for number in ids if not 0 <= number < vocabulary_size), None)
    if wrong is not None:
        raise RefusedError(
            f"{name} has the token {wrong}; the vocabulary of this model has 0 to {vocabulary_size - 1}. Use this "
            "model's own tokenizer."
        )
