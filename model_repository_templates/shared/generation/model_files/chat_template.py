"""A user's question as a chat model was trained to see it, by the Jinja2 template that comes with a checkpoint.

The template is somebody else's code, and its arguments are a client's: all templates of a process are rendered by a few
others, each of which a template may end (generation/workers/preparers.py).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from generation.model_files.channels import marks_of
from generation.model_files.tool_calls import check_tools, format_of
from generation.requests.question import RefusedError
from generation.requests.template_arguments import with_effort
from generation.settings import SettingsError
from generation.workers.preparers import PREPARERS
from generation.workers.worker import LimitError, WorkError

SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
DEFAULT = "default"
"""The one that counts where a checkpoint brings several templates."""

PROBE = "Hello"

REMEDY = "Set chat_template to none."

SYSTEM, DEVELOPER = "system", "developer"


class ChatTemplate:
    """Wraps a question. Called from several threads.

    A question is a text, or the one part of a message, whichever the template puts into the prompt: templates of
    multimodal models may take parts only.
    """

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], arguments: Mapping[str, Any] | None = None
    ) -> None:
        """`arguments` reach the template with every question."""
        try:
            PREPARERS.ask({"template": source})
        except WorkError as error:
            raise SettingsError(f"the chat template is not valid Jinja2: {error}. {REMEDY}") from error
        self._given = {**(arguments or {}), **special_tokens}
        self._source = source
        self._names_developer = any(f"{quote}{DEVELOPER}{quote}" in source for quote in "'\"")
        self.tool_call_format, self.thought_marks = format_of(source), marks_of(source)
        self._in_parts = False
        whole, refusal = self._probe()
        if PROBE in whole:
            return
        if refusal is None or not isinstance(refusal.__cause__, LimitError):  # parts would take as long
            self._in_parts = True
            self._in_parts = PROBE in self._probe()[0]
        if refusal is not None and not self._in_parts:
            raise SettingsError(f"{refusal} {REMEDY}") from refusal

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

        A template that does not name the role `developer` gets such messages as the system's.

        Raises:
            RefusedError: the template does not take these messages, takes too long for them, or ignores the tools.
            BusyError: too many others are being rendered.
        """
        last = str(messages[-1]["content"])[:64]
        messages = messages if self._names_developer else _without_developer(messages)
        check_tools(self._source, messages, tools)
        effort = with_effort(self._source, arguments or {}, thinks=self.thought_marks is not None)
        named = {**effort, "tools": list(tools) or None, "documents": None}  # defined, as transformers renders
        parted = [{**each, "content": [{"type": "text", "text": each["content"]}]} for each in messages]
        given = {**self._given, **named, "messages": parted if self._in_parts else messages}
        try:
            return str(PREPARERS.ask({"template": self._source, "given": {**given, "add_generation_prompt": True}}))
        except LimitError as error:
            raise RefusedError(f"the chat template {error} with {last!r}. Send something else.") from error
        except WorkError as error:  # a template computes with what a client sends, and may fail like any program
            raise RefusedError(f"the chat template does not take {last!r}: {error}.") from error

    def _probe(self) -> tuple[str, RefusedError | None]:
        """What becomes of a question. A template that wants parts may leave a text out instead of refusing it."""
        try:
            return self.wrap(PROBE), None
        except RefusedError as error:
            return "", error


def _without_developer(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages with one of the system's, the first, that says what all the system's and developer's say.

    Most templates leave out a role that they do not know, or refuse it, and some refuse a system's message that is not
    the first. Without a developer's, the messages are as they were. As vLLM: renderers/hf.py,
    _consolidate_system_messages.
    """
    if all(each["role"] != DEVELOPER for each in messages):
        return list(messages)
    said = [str(each["content"]) for each in messages if each["role"] in (SYSTEM, DEVELOPER)]
    others = [each for each in messages if each["role"] not in (SYSTEM, DEVELOPER)]
    return [{"role": SYSTEM, "content": "\n\n".join(filter(None, said))}, *others]


def read_chat_template(folder: Path, arguments: Mapping[str, Any] | None = None) -> ChatTemplate | None:
    """The template of a checkpoint; None without one.

    The first of chat_template.jinja, tokenizer_config.json and chat_template.json counts; of several named templates,
    the default. plan reads in the same order (slipway/tasks/engines/preflight/chat.py).
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


def chat_template_of(folder: Path, arguments: Mapping[str, Any] | None = None) -> ChatTemplate:
    """The template of a checkpoint that must have one.

    Raises:
        SettingsError: it has none, or one that renders no question.
    """
    template = read_chat_template(folder, arguments)
    if template is None:
        raise SettingsError(f"the tokenizer of {folder} has no chat template; set chat_template to none.")
    return template


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
