"""Reads the chat template that serving will apply, from a source's documents."""

from collections.abc import Mapping
from typing import Any, Literal

from tasks.contracts.errors import InputError
from tasks.contracts.spec import ReleaseSpec
from tasks.engines.preflight.hub_metadata import TOKENIZER_CONFIG, Documents

TEMPLATE_FILE = "chat_template.jinja"
PROCESSOR_TEMPLATE = "chat_template.json"
"""What a multimodal model's processor reads (transformers 4.57.3, processing_utils.py): `{"chat_template": "..."}`."""
FIELD = "chat_template"
DOCUMENTS = (TEMPLATE_FILE, TOKENIZER_CONFIG, PROCESSOR_TEMPLATE)
"""Where a template may be; the first one counts. The serving code reads in the same order
(model_repository_templates/shared/generation/chat_template.py). transformers' tokenizers read the first two."""
DEFAULT = "default"
"""The template that counts where tokenizer_config.json lists several. The files in additional_chat_templates/ are the
others (transformers 4.57.3, utils/hub.py, CHAT_TEMPLATE_DIR), so they are not downloaded."""


def template_of(documents: Documents) -> str | None:
    """The template that serving applies to a prompt; None without one."""
    templates = (_templates(documents.get(name, {})).get(DEFAULT) for name in DOCUMENTS)
    return next((template for template in templates if template), None)


def chat_template_of(spec: ReleaseSpec, documents: Documents) -> Literal["apply", "none"]:
    """Whether serving applies a chat template: as the spec says, else if the tokenizer has one.

    Raises:
        InputError: the spec says apply, but the tokenizer has none; or all its templates are for special uses.
    """
    requested = spec.engine.options.get(FIELD)
    if requested == "none":
        return "none"
    if template_of(documents):
        return "apply"
    named = sorted({name for document in DOCUMENTS for name in _templates(documents.get(document, {}))} - {DEFAULT})
    if spec.engine.traits.applies_chat_template and (named or requested == "apply"):
        raise InputError(
            f"engine.options.chat_template is {requested or 'absent'}, but the tokenizer of {spec.source.repo} has no "
            f"chat template{' named default' if named else ''}",
            found=f"templates named {', '.join(named)}" if named else "",
            expected="a file of its own, or a template in tokenizer_config.json",
            remedy="Choose none, or a model that was trained to chat.",
        )
    return "none"


def _templates(document: Mapping[str, Any]) -> dict[str, str]:
    """A document's templates by name. A list of them has objects with `name` and `template`; others are ignored."""
    value = document.get(FIELD)
    if not isinstance(value, list):
        return {DEFAULT: value} if isinstance(value, str) else {}
    entries = (entry for entry in value if isinstance(entry, Mapping))
    pairs = [(entry.get("name"), entry.get("template")) for entry in entries]
    return {name: template for name, template in pairs if isinstance(name, str) and isinstance(template, str)}
