"""Renders chat templates and translates JSON Schemas in a process of its own, within limits (worker.py).

A template is somebody else's code: it runs in Jinja2's sandbox, with the names that Hugging Face documents
(transformers 4.57, `apply_chat_template`). The sandbox keeps it from files and processes, and not from long loops, long
texts and deep calls.
"""

import json
import sys
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from generation.grammar.ebnf import Dialect
from generation.json_schema import SchemaError, grammar_of
from generation.workers.worker import serve

if TYPE_CHECKING:
    from collections.abc import Callable

GROWTH, ROOM_CHARS = 2, 256 << 10
"""A prompt has at most the characters of what is given to the template so many times, and so many more. All of it would
be tokenized."""


class PromptError(Exception):
    """The template makes something that is no prompt."""


def prepare() -> "Callable[[dict[str, Any]], str | dict[str, str]]":
    """A function that does either. Jinja2 is loaded before the first request, at whose cost it shall not be."""
    import jinja2.sandbox  # noqa: F401

    return lambda request: translated(**request) if "schema" in request else rendered(request)


def translated(schema: str, dialect: str) -> dict[str, str]:
    """The `grammar` of a schema, or the `refusal` that says why it has none."""
    try:
        return {"grammar": grammar_of(schema, Dialect(dialect))}
    except SchemaError as error:
        return {"refusal": str(error)}


def rendered(request: dict[str, Any]) -> str:
    """The prompt that `template` makes of what is `given`; without that, the template is compiled only."""
    template = compiled(request["template"])
    if "given" not in request:
        return ""
    given = request["given"]
    text = str(template.render(given))
    most = ROOM_CHARS + GROWTH * len(json.dumps(given, ensure_ascii=False))
    if len(text) > most:
        raise PromptError(f"it makes a prompt of {len(text)} characters; the limit for this request is {most}")
    text.encode()  # raises an error where it has half a surrogate pair
    return text


@lru_cache(maxsize=1)
def compiled(source: str) -> Any:
    """The template, with what transformers gives to one."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    extensions = [loopcontrols, _generation_tag()]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _json
    environment.globals.update(raise_exception=_refuse, strftime_now=_now)
    return environment.from_string(source)


def _refuse(message: str) -> NoReturn:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _generation_tag() -> type:
    """`{% generation %}` marks what a model is trained on (transformers 4.57, AssistantTracker); it changes no text."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 - as Jinja2 declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    return Generation


def main(descriptor: str, memory_bytes: str) -> int:
    """Render until the other end closes."""
    return serve(int(descriptor), int(memory_bytes), prepare)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
