"""Arguments of a chat template that a request brings, e.g. {"enable_thinking": false}. Computes only."""

import re
from collections.abc import Mapping
from typing import Any

from generation.bounded_json import Bounds, BoundsError, read
from generation.requests.question import RefusedError

INPUT = "chat_template_kwargs"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
GIVEN = frozenset(
    {
        *("messages", "add_generation_prompt", "tools", "documents", "raise_exception", "strftime_now"),
        *("bos_token", "eos_token", "pad_token", "unk_token"),
    }
)
"""Names that mean something else in a template. No spec may use them: slipway/tasks/contracts/spec_fields.py."""
MAX_ARGUMENTS, MAX_CHARS = 20, 1000
BOUNDS = Bounds(chars=MAX_ARGUMENTS * 6 * MAX_CHARS)
"""JSON may write a character in six."""
EFFORT, NO_EFFORT, SWITCH = "reasoning_effort", "none", "enable_thinking"
"""An argument that clients send to any model, so that a template without it would drop it without a word; and how
OpenAI's API, and the templates of Qwen 3 and others, say that the model must not think."""
NO_TEMPLATE = f"{INPUT} has no effect: this model applies no chat template. Leave it out."


def read_arguments(text: str) -> dict[str, Any]:
    """A request's arguments from their JSON.

    Raises:
        RefusedError: it is no object of texts, numbers and switches, a name is not free, or it is too large.
    """
    try:
        found = read(text, BOUNDS)
    except BoundsError as error:
        raise RefusedError(f'{INPUT} {error}. Send an object, e.g. {{"enable_thinking": false}}.') from error
    if not isinstance(found, dict) or len(found) > MAX_ARGUMENTS:
        raise RefusedError(f"{INPUT} is {text[:64]}; expected a JSON object with at most {MAX_ARGUMENTS} members.")
    for name, value in found.items():
        if not NAME.fullmatch(name) or name in GIVEN:
            raise RefusedError(f"{INPUT} may not set {name[:64]!r}. Use the name of an argument of the chat template.")
        if not isinstance(value, str | int | float) or len(str(value)) > MAX_CHARS:
            raise RefusedError(
                f"{INPUT} has {str(value)[:64]!r} for {name}; expected a text of at most {MAX_CHARS} characters, "
                "a number, true or false."
            )
    return found


def with_effort(template: str, arguments: Mapping[str, Any], *, thinks: bool) -> Mapping[str, Any]:
    """The arguments as a chat template takes them: one that only switches thoughts on and off takes no effort as off.

    A model that does not think makes no effort anyway.

    Raises:
        RefusedError: there is an effort, and the template has no word of it.
    """
    if EFFORT not in arguments or EFFORT in template:
        return arguments
    if arguments[EFFORT] != NO_EFFORT or (thinks and SWITCH not in template):
        raise RefusedError(f"{EFFORT} has no effect: the chat template of this model does not take it. Leave it out.")
    switch = {SWITCH: False} if SWITCH in template else {}
    return {**switch, **{name: each for name, each in arguments.items() if name != EFFORT}}
