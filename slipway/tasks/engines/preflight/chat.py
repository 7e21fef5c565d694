"""Reads the chat template that serving will apply, from a source's documents."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from slipway.tasks.contracts.engine.engine_kinds import kinds_with
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.question import answer_tokens
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.chat_template import check_renders
from slipway.tasks.engines.preflight.hub_metadata import TOKENIZER_CONFIG, Documents

TEMPLATE_FILE = "chat_template.jinja"
PROCESSOR_TEMPLATE = "chat_template.json"
"""What a multimodal model's processor reads (transformers 4.57.3, processing_utils.py): `{"chat_template": "..."}`."""
FIELD = "chat_template"
DOCUMENTS = (TEMPLATE_FILE, TOKENIZER_CONFIG, PROCESSOR_TEMPLATE)
"""Where a template may be; the first one counts. The serving code reads in the same order
(model_repository_templates/shared/generation/model_files/chat_template.py).
transformers' tokenizers read the first two."""
DEFAULT = "default"
"""The template that counts where tokenizer_config.json lists several. The files in additional_chat_templates/ are the
others (transformers 4.57.3, utils/hub.py, CHAT_TEMPLATE_DIR), so they are not downloaded."""
THINKING = ("thinking", "reasoning", "<think>", "</think>", "<|channel|>")
"""What the templates of models that think before they answer mention: Qwen3, DeepSeek-R1 and V3.1, gpt-oss."""
CHANNELS = "<|channel|>"
"""gpt-oss answers in channels, of which `final` is for the reader (OpenAI's harmony format: openai/openai-cookbook,
articles/openai-harmony.md, 16e9d6f4)."""
MESSAGE_MARKS = ("[INST]", "<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|user|>", "<|start|>")
"""What begins a message in the templates of Mistral and Llama 2, Qwen and SmolLM, Llama 3, Gemma, Phi 3, gpt-oss."""
FEW_TOKENS = 512
"""Fewer cut off most answers within the thoughts: a lower limit is worth a warning."""

REMEDY = "Raise max_tokens, or set what the template takes in engine.chat_template_kwargs, e.g. enable_thinking: false."


def template_of(documents: Documents) -> str | None:
    """The template that serving applies to a prompt; None without one."""
    templates = (_templates(documents.get(name, {})).get(DEFAULT) for name in DOCUMENTS)
    return next((template for template in templates if template), None)


def chat_template_of(spec: ReleaseSpec, documents: Documents) -> Literal["apply", "none"]:
    """Whether serving applies a chat template: as the spec says, else if the tokenizer has one.

    Raises:
        InputError: the spec says apply, but the tokenizer has none; or all its templates are for special uses; or there
            is none that would get the spec's arguments.
    """
    requested = spec.engine.options.get(FIELD)
    if requested == "none":
        return "none"
    if template_of(documents):
        return "apply"
    named = sorted({name for document in DOCUMENTS for name in _templates(documents.get(document, {}))} - {DEFAULT})
    if named or requested == "apply":
        raise InputError(
            f"engine.options.chat_template is {requested or 'absent'}, but the tokenizer of {spec.source.model} has no "
            f"chat template{' named default' if named else ''}",
            found=f"templates named {', '.join(named)}" if named else "",
            expected="a file of its own, or a template in tokenizer_config.json",
            remedy="Choose a model that was trained to chat, or none.",
        )
    if spec.engine.chat_template_kwargs:
        raise InputError(
            f"engine.chat_template_kwargs has no effect: the tokenizer of {spec.source.model} has no chat template",
            found=", ".join(spec.engine.chat_template_kwargs),
            remedy="Remove it, or choose a model that was trained to chat.",
        )
    return "none"


def check_rendering(spec: ReleaseSpec, documents: Documents) -> None:
    """Refuse a template that does not render the release's questions as its servers will, before a pod with a GPU does.

    Raises:
        InputError: as chat_template_of, and as check_renders.
    """
    if chat_template_of(spec, documents) == "none":
        return
    with TemporaryDirectory() as folder:
        for name in DOCUMENTS:
            if name in documents:
                document = documents[name]
                text = str(document[FIELD]) if name == TEMPLATE_FILE else json.dumps(document)
                Path(folder, name).write_text(text, encoding="utf-8")
        check_renders(Path(folder), spec)


def _templates(document: Mapping[str, Any]) -> dict[str, str]:
    """A document's templates by name. A list of them has objects with `name` and `template`; others are ignored."""
    value = document.get(FIELD)
    if not isinstance(value, list):
        return {DEFAULT: value} if isinstance(value, str) else {}
    entries = (entry for entry in value if isinstance(entry, Mapping))
    pairs = [(entry.get("name"), entry.get("template")) for entry in entries]
    return {name: template for name, template in pairs if isinstance(name, str) and isinstance(template, str)}


def thinks(documents: Documents) -> bool:
    """Whether the tokenizer's chat template mentions thinking."""
    template = template_of(documents) or ""
    return any(word in template for word in THINKING)


def warnings(spec: ReleaseSpec, documents: Documents) -> list[str]:
    """What a person should know of questions to a model that thinks, and of its answers; one line each."""
    template = template_of(documents) or ""
    thoughts = _short_answers(spec) if thinks(documents) else ()
    return [*_wrapped_twice(spec, template), *thoughts, *(_channels(spec) if CHANNELS in template else ())]


def _wrapped_twice(spec: ReleaseSpec, template: str) -> Iterator[str]:
    """A prompt in the model's own chat format would be wrapped in its chat template again."""
    if spec.engine.options.get(FIELD) == "none":
        return
    marks = [mark for mark in MESSAGE_MARKS if mark in template]
    found = sorted({mark for question in spec.gate.smoke for mark in marks if mark in question.prompt})
    if found:
        yield (
            f"gate.smoke has prompts with {', '.join(found)}, which the chat template of {spec.source.model} writes "
            "around each of them: a model that reads it twice may answer wrongly. Send the question alone, or set "
            f"engine.options.{FIELD} to none."
        )


def _short_answers(spec: ReleaseSpec) -> Iterator[str]:
    gate = spec.gate
    questions = [("gate.smoke", question.max_tokens, question.chat_template_kwargs) for question in gate.smoke]
    if gate.quality is not None:
        questions.append(("gate.quality", gate.quality.max_tokens, gate.quality.chat_template_kwargs))
    few: dict[str, int] = {}
    for where, max_tokens, arguments in questions:
        tokens = answer_tokens(max_tokens, room=spec.engine.answer_room, thinks=True)
        if tokens < FEW_TOKENS and not _switched_off({**spec.engine.chat_template_kwargs, **arguments}):
            few[where] = min(tokens, few.get(where, tokens))
    for where, tokens in few.items():
        yield (
            f"{where} has questions with {tokens} tokens for an answer, and the chat template of {spec.source.model} "
            f"mentions thinking: an answer that ends within the thoughts is wrong. {REMEDY}"
        )


def _channels(spec: ReleaseSpec) -> Iterator[str]:
    if not spec.engine.traits.final_channel_only:
        yield (
            f"{spec.source.model} answers in channels, and {spec.engine.kind} returns their text in one piece, without "
            f"what separates them (analysis...assistantfinal...). Only the final channel is returned by "
            f"{', '.join(kinds_with('final_channel_only'))}."
        )


def _switched_off(arguments: Mapping[str, object]) -> bool:
    return any(value is False and "think" in name for name, value in arguments.items())
