"""The model repository of a release, which is rendered without a GPU toolkit."""

import json
from functools import cache

from slipway.tasks.engines.registry import maker_for
from slipway.tasks.serving.rendered.paths import ENGINE_DESCRIPTION
from slipway.tasks.serving.rendered.repository import render
from tests.contracts.recorded import check_document, contract
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

TEMPLATES = REPOSITORY / "model_repository_templates"
ARGUMENTS = {"model.yaml": "llm_arguments.yaml", "model.json": "vllm_engine_arguments.yaml"}
"""Recorded fields by the file with a runtime's arguments."""


@cache
def recorded(name):
    return contract(name)


def check_rendered(releases, folder):
    """Render the repositories of a kind's releases; a file that its reader would not take fails.

    A repository that was rendered already is not rendered again: most models of a kind differ in the engine alone.
    """
    rendered = set()
    for number, spec in enumerate(releases):
        own = folder / str(number)
        own.mkdir()
        values = _values(spec, own)
        if (text := json.dumps(values, sort_keys=True)) not in rendered:
            rendered.add(text)
            _check_repository(spec.engine.kind, values, own / "repository")


def _values(spec, folder):
    """Values of the templates, from what build would have read back."""
    description = {
        "limits": spec.engine.model_dump(include={"max_batch_size", "max_input_tokens", "max_sequence_tokens"}),
        "chat_template": "apply",
        "kv_cache_fraction": 0.9,
        "paged_attention": True,
        "versions": {},
    }
    (folder / ENGINE_DESCRIPTION).write_text(json.dumps(description))
    return maker_for(spec.engine.kind).template_values(folder, spec)


def _check_repository(kind, values, out):
    """As assemble renders it."""
    out.mkdir()
    render(TEMPLATES, kind, values, out)
    for name, arguments in ARGUMENTS.items():
        for file in out.rglob(name):
            check_document(load_yaml(file.read_text()), recorded(arguments))
