"""Calls of tools within an answer, in the formats that models were trained to write. Pure.

- hermes (Hermes, Qwen 2.5 and 3): `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, anywhere in the text
- llama3_json (Llama 3.1 to 3.3): the whole text is `{"name": ..., "parameters": {...}}`, several with `;` between them
- mistral (Mistral, Nemo): the whole text is `[{"name": ..., "arguments": {...}}, ...]` behind `[TOOL_CALLS]`

Special tokens such as `[TOOL_CALLS]` and `<|python_tag|>` may be missing from the text, and a model may mix up
`arguments` and `parameters`. What looks like a call and is none stays text. The formats are named by the model, from
its chat template (generation/model_files/tool_calls.py).
"""

import json
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipway.tasks.contracts.wire.bounded_json import Bounds, BoundsError, read

OPENS, CLOSES = "<tool_call>", "</tool_call>"
ARGUMENTS = ("arguments", "parameters")
"""What a call may name its arguments."""


BOUNDS = Bounds(chars=1 << 20, repeated_names=True)
"""What looks like a call and is beyond them stays text: a model may write NaN and half surrogate pairs."""


@dataclass(frozen=True)
class Call:
    """One call; `arguments` is JSON."""

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}")

    def document(self) -> dict[str, Any]:
        """The call as OpenAI's API writes it."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


class Reader(Protocol):
    """Tells text and calls of one answer apart as it grows."""

    def advance(self, text: str, *, final: bool) -> list[str | Call]:
        """What is certain now, in order; nothing is held back when this is `final`."""


class Tagged:
    """hermes: calls between tags. What may be the beginning of a tag is held back, as is a call until it is whole."""

    def __init__(self) -> None:
        self._held, self._calls = "", 0

    def advance(self, text: str, *, final: bool) -> list[str | Call]:
        """As Reader."""
        self._held += text
        parts: list[str | Call] = []
        while (begin := self._held.find(OPENS)) >= 0 and (end := self._held.find(CLOSES, begin)) >= 0:
            end += len(CLOSES)
            call = _call(self._held[begin + len(OPENS) : end - len(CLOSES)])
            parts += [self._content(self._held[:begin] if call else self._held[:end]), *([call] if call else [])]
            self._calls += call is not None
            self._held = self._held[end:]
        keep = 0 if final else len(self._held) - begin if begin >= 0 else _shared(self._held, OPENS)
        parts.append(self._content(self._held[: len(self._held) - keep]))
        self._held = self._held[len(self._held) - keep :]
        return [part for part in parts if part != ""]

    def _content(self, text: str) -> str:
        """Text around calls; the line breaks between them are part of the format."""
        return "" if self._calls and not text.strip() else text


class Whole:
    """Formats in which the whole answer is calls, or none of it: known by how the text begins.

    An answer may be JSON that is no call, so that one has its arguments, and the name of one of `tools`.
    """

    def __init__(self, marker: str, first: str, read: Callable[[str], Sequence[Any]], tools: Collection[str]) -> None:
        """`read` gives the values of an answer; none where it is not in the format."""
        self._marker, self._first, self._read, self._tools = marker, first, read, tools
        self._held, self._is_text = "", False

    def advance(self, text: str, *, final: bool) -> list[str | Call]:
        """As Reader."""
        self._held += text
        start = self._held.lstrip()
        begun = start.startswith((self._marker, self._first))
        if not self._is_text and not final and (begun or self._marker.startswith(start)):
            return []
        calls = [] if self._is_text or not begun else self._calls(start.removeprefix(self._marker))
        parts: list[str | Call] = [*calls] if calls else [self._held]
        self._held, self._is_text = "", True
        return [part for part in parts if part != ""]

    def _calls(self, text: str) -> list[Call]:
        values = self._read(text)
        calls = [_call_of(each) for each in values if isinstance(each, dict) and not each.keys().isdisjoint(ARGUMENTS)]
        kept = [call for call in calls if call and call.name in self._tools]
        return kept if len(kept) == len(values) else []


class Forced:
    """An answer that guided decoding made a call: its name and arguments, or the arguments of `name` alone."""

    def __init__(self, name: str | None) -> None:
        self._name, self._held = name, ""

    def advance(self, text: str, *, final: bool) -> list[str | Call]:
        """As Reader. An answer that was cut off is no call of any function by itself: it stays text."""
        self._held += text
        if not final:
            return []
        call = _call(self._held) if self._name is None else Call(self._name, self._held.strip())
        return [call or self._held]


class Echoed:
    """An answer in which no calls are known, behind the text of its prompt."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def advance(self, text: str, *, final: bool) -> list[str | Call]:
        """As Reader."""
        del final
        text, self._prompt = self._prompt + text, ""
        return [text] if text else []


class Plain:
    """An answer in which no calls are known."""

    def advance(self, text: str, *, final: bool) -> list[str | Call]:
        """As Reader."""
        del final
        return [text] if text else []


def reader_of(call_format: str, tools: Collection[str]) -> Reader:
    """The reader of a format, where `tools` are offered; of an unknown one, everything is text."""
    if call_format == "hermes":
        return Tagged()
    if call_format == "llama3_json":
        return Whole("<|python_tag|>", "{", _objects, tools)
    return Whole("[TOOL_CALLS]", "[", _list, tools) if call_format == "mistral" else Plain()


def _objects(text: str) -> list[Any]:
    """The objects of a text that has `;` between them."""
    decoder, found, rest = json.JSONDecoder(), [], text.strip()
    try:
        while rest:
            _, end = decoder.raw_decode(rest)
            found.append(read(rest[:end], BOUNDS))
            rest = rest[end:].lstrip().removeprefix(";").lstrip()
    except (ValueError, RecursionError):
        return []
    return found


def _list(text: str) -> list[Any]:
    found = _value(text)
    return found if isinstance(found, list) else []


def _value(text: str) -> Any:
    """What a JSON text says; None where it is not JSON within its bounds."""
    try:
        return read(text, BOUNDS)
    except BoundsError:
        return None


def _call(text: str) -> Call | None:
    return _call_of(_value(text))


def _call_of(found: Any) -> Call | None:
    if not isinstance(found, dict) or not isinstance(found.get("name"), str) or not found["name"]:
        return None
    given: Any = next((found[name] for name in ARGUMENTS if name in found), {})
    return Call(found["name"], json.dumps(given, ensure_ascii=False)) if isinstance(given, dict) else None


def _shared(text: str, tag: str) -> int:
    """How many characters at the end of `text` begin `tag`."""
    longest = min(len(text), len(tag) - 1)
    return next((size for size in range(longest, 0, -1) if tag.startswith(text[len(text) - size :])), 0)
