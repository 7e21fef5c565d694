"""Arguments of a chat template that a request brings, e.g. {"enable_thinking": false}. Computes only."""

import json
import math
import re
from typing import Any

from generation.question import RefusedError

INPUT = "chat_template_kwargs"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
GIVEN = frozenset(
    {
        *("messages", "add_generation_prompt", "tools", "documents", "raise_exception", "strftime_now"),
        *("bos_token", "eos_token", "pad_token", "unk_token"),
    }
)
"""Names that mean something else in a template. A spec may not use them either: tasks/contracts/spec_fields.py."""
MAX_ARGUMENTS, MAX_CHARS = 20, 1000
NO_TEMPLATE = f"{INPUT} has no effect: this model applies no chat template. Leave it out."


def read_arguments(text: str) -> dict[str, Any]:
    """A request's arguments from their JSON.

    Raises:
        RefusedError: it is no object of texts, numbers and switches, a name is not free, or it is too large.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            f'{INPUT} is not valid JSON: {error}. Send an object, e.g. {{"enable_thinking": false}}.'
        ) from error
    if not isinstance(found, dict) or len(found) > MAX_ARGUMENTS:
        raise RefusedError(f"{INPUT} is {text[:64]}; expected a JSON object with at most {MAX_ARGUMENTS} members.")
    for name, value in found.items():
        if not NAME.fullmatch(name) or name in GIVEN:
            raise RefusedError(f"{INPUT} may not set {name[:64]!r}. Use the name of an argument of the chat template.")
        if isinstance(value, str) and not _is_text(value):
            raise RefusedError(f"{INPUT} has half a surrogate pair for {name}, which no tokenizer reads. Send UTF-8.")
        if not isinstance(value, str | int | float) or len(str(value)) > MAX_CHARS or not _is_finite(value):
            raise RefusedError(
                f"{INPUT} has {str(value)[:64]!r} for {name}; expected a text of at most {MAX_CHARS} characters, "
                "a number, true or false."
            )
    return found


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8. JSON can name halves of surrogate pairs."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_finite(value: str | float) -> bool:
    """False of what Python's JSON reads as infinite or as no number, e.g. 1e999."""
    return not isinstance(value, float) or math.isfinite(value)
