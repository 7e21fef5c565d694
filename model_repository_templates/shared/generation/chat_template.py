"""A user's question as a chat model was trained to see it, by the Jinja2 template that comes with a checkpoint.

The template is somebody else's code: it runs in Jinja2's sandbox, with the names that Hugging Face documents
(transformers 4.57, `apply_chat_template`).
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from generation.question import RefusedError
from generation.settings import SettingsError
from generation.tool_calls import check_tools, format_of

SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
DEFAULT = "default"
"""The one that counts where a checkpoint brings several templates."""

PROBE = "Hello"


class ChatTemplate:
    """Wraps a question. Called from several threads.

    A question is a text, or the one part of a message, whichever the template puts into the prompt: templates of
    multimodal models may take parts only.
    """

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], arguments: Mapping[str, Any] | None = None
    ) -> None:
        """`arguments` reach the template with every question."""
        from jinja2.exceptions import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        extensions = [loopcontrols, _generation_tag()]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        environment.filters["tojson"] = _json
        environment.globals.update(raise_exception=_refuse, strftime_now=_now)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise SettingsError(f"the chat template is no Jinja2: {error}. Set chat_template to none.") from error
        self._given = {**(arguments or {}), **special_tokens}
        self._source = source
        self.tool_call_format = format_of(source)
        self._in_parts = False
        whole, refusal = self._probe()
        if PROBE in whole:
            return
        self._in_parts = True
        self._in_parts = PROBE in self._probe()[0]
        if refusal is not None and not self._in_parts:
            raise SettingsError(f"{refusal} Set chat_template to none.") from refusal

    def wrap(self, question: str, arguments: Mapping[str, Any] | None = None) -> str:
        """The whole prompt, up to where the model's answer begins. `arguments` override those of every question.

        Raises:
            RefusedError: the template does not take this question.
        """
        return self.render([{"role": "user", "content": question}], arguments)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        arguments: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """The prompt of a conversation, up to where the model's next answer begins.

        Raises:
            RefusedError: the template does not take these messages, or ignores the tools.
        """
        check_tools(self._source, messages, tools)
        named = {**(arguments or {}), **({"tools": tools} if tools else {})}
        parted = [{**each, "content": [{"type": "text", "text": each["content"]}]} for each in messages]
        given = {**self._given, **named, "messages": parted if self._in_parts else messages}
        try:
            return self._template.render({**given, "add_generation_prompt": True})
        except Exception as error:  # a template computes with what a client sends, and may fail like any program
            last = str(messages[-1]["content"])[:64]
            raise RefusedError(f"the chat template does not take {last!r}: {str(error)[:256]}.") from error

    def _probe(self) -> tuple[str, RefusedError | None]:
        """What becomes of a question. A template that wants parts may leave a text out instead of refusing it."""
        try:
            return self.wrap(PROBE), None
        except RefusedError as error:
            return "", error


def read_chat_template(folder: Path, arguments: Mapping[str, Any] | None = None) -> ChatTemplate | None:
    """The template of a checkpoint; None without one.

    The first of chat_template.jinja, tokenizer_config.json and chat_template.json counts; of several named templates,
    the default. plan reads in the same order (tasks/engines/preflight/chat.py).
    """
    config = read_json(folder / "tokenizer_config.json")
    file = folder / "chat_template.jinja"
    found = (
        file.read_text(encoding="utf-8") if file.exists() else None,
        _default(config),
        _default(read_json(folder / "chat_template.json")),
    )
    source = next((source for source in found if source), None)
    return ChatTemplate(source, special_tokens(config), arguments) if source else None


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by role, from tokenizer_config.json, where each is a text or an object with one."""
    found = {role: config.get(role) for role in SPECIAL}
    return {role: token["content"] if isinstance(token, dict) else token for role, token in found.items() if token}


def read_json(file: Path) -> dict[str, Any]:
    """A checkpoint's JSON file; empty where there is none."""
    return dict(json.loads(file.read_bytes())) if file.exists() else {}


def _default(document: Mapping[str, Any]) -> str | None:
    """A document's default template. A list of templates has objects with `name` and `template`."""
    found = document.get("chat_template")
    if isinstance(found, list):
        entries = (entry.get("template") for entry in found if isinstance(entry, dict) and entry.get("name") == DEFAULT)
        found = next((text for text in reversed(list(entries)) if isinstance(text, str)), None)
    return found if isinstance(found, str) else None


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
