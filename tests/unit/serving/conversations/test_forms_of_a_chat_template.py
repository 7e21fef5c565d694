"""Every form in which a checkpoint brings its chat template: plan, build and the server read the same."""

import json
from pathlib import Path

import pytest
from generation.model_files.chat_template import ChatTemplate, read_chat_template
from generation.requests.question import RefusedError
from generation.settings import SettingsError

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.passthrough import chat_template_in
from slipway.tasks.engines.preflight.chat import template_of
from slipway.tasks.engines.preflight.sources import documents_of, files_of_release
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import SPEC, spec
from tests.support.refused import refused

FIRST, SECOND, THIRD = ("{{ messages[0].content }} " + word for word in ("first", "second", "third"))
NAMED = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": SECOND}]
FORMS = {
    "none": ({}, None),
    "a file": ({"chat_template.jinja": FIRST}, FIRST),
    "the tokenizer": ({"tokenizer_config.json": {"chat_template": SECOND}}, SECOND),
    "named templates": ({"tokenizer_config.json": {"chat_template": NAMED}}, SECOND),
    "named templates without a default": ({"tokenizer_config.json": {"chat_template": NAMED[:1]}}, None),
    "two defaults": (
        {"tokenizer_config.json": {"chat_template": [{"name": "default", "template": FIRST}, *NAMED]}},
        SECOND,
    ),
    "entries of other shapes": ({"tokenizer_config.json": {"chat_template": ["x", {"name": "default"}]}}, None),
    "a processor": ({"chat_template.json": {"chat_template": THIRD}}, THIRD),
    "a processor without one": ({"chat_template.json": {}}, None),
    "a file and a tokenizer": (
        {"chat_template.jinja": FIRST, "tokenizer_config.json": {"chat_template": SECOND}},
        FIRST,
    ),
    "a tokenizer and a processor": (
        {"tokenizer_config.json": {"chat_template": SECOND}, "chat_template.json": {"chat_template": THIRD}},
        SECOND,
    ),
    "an empty file and a processor": (
        {"chat_template.jinja": "", "chat_template.json": {"chat_template": THIRD}},
        THIRD,
    ),
    "templates for special uses": ({"additional_chat_templates/tool_use.jinja": "tools"}, None),
}
GPU = {
    "quantization": {"format": "none"},
    "engine": {**SPEC["engine"], "kind": "llmapi", "gpu": "NVIDIA-L4"},
}


def as_bytes(content):
    return content.encode() if isinstance(content, str) else json.dumps(content).encode()


def at_plan(files):
    """Documents that plan reads of a repository with these files."""
    published = {"model.safetensors": b"x", **{name: as_bytes(content) for name, content in files.items()}}
    hub, wanted = MemoryHub({"org/model": {"main": published}}), spec(**GPU).engine.traits.reads_at_plan
    return documents_of(files_of_release(hub.resolve("org/model", "main")), wanted, hub)


def on_disk(files, folder):
    for name, content in files.items():
        if "/" not in name:
            Path(folder, name).write_bytes(as_bytes(content))
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_plan_and_the_server_read_the_same_template(form, tmp_path):
    files, template = FORMS[form]
    served = read_chat_template(on_disk(files, tmp_path))

    assert template_of(at_plan(files)) == template
    assert (served.wrap("Hi") if served else None) == (template and f"Hi {template.split()[-1]}")


@pytest.mark.parametrize("form", set(FORMS) - {"named templates without a default"})
def test_build_tells_the_server_to_apply_a_template_where_it_finds_one(form, tmp_path):
    files, template = FORMS[form]

    assert chat_template_in(on_disk(files, tmp_path), spec(**GPU)) == ("apply" if template else "none")


def test_templates_without_a_default_are_refused_unless_prompts_are_sent_as_they_are(tmp_path):
    folder = on_disk(FORMS["named templates without a default"][0], tmp_path)
    as_they_are = {**GPU, "engine": {**GPU["engine"], "options": {"chat_template": "none"}}}

    with refused(what="no chat template named default", found="tool_use"):
        chat_template_in(folder, spec(**GPU))
    assert chat_template_in(folder, spec(**as_they_are)) == "none"


def test_arguments_for_a_template_that_is_not_there_are_refused(tmp_path):
    arguments = {**GPU, "engine": {**GPU["engine"], "chat_template_kwargs": {"enable_thinking": False}}}

    with refused(what="engine.chat_template_kwargs has no effect", found="enable_thinking"):
        chat_template_in(tmp_path, spec(**arguments))


def test_a_template_that_is_not_utf_8_is_refused_at_plan():
    with pytest.raises(InputError, match=r"chat_template\.jinja is not valid UTF-8"):
        documents_of(*undecodable())


def undecodable():
    hub = MemoryHub({"org/model": {"main": {"model.safetensors": b"x", "chat_template.jinja": b"\xff"}}})
    return hub.resolve("org/model", "main"), ("chat_template.jinja",), hub


@pytest.mark.parametrize(
    "source",
    [
        "{% for part in messages[0].content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}!",
        (
            "{% if messages[0].content is string %}{{ raise_exception('parts only') }}{% endif %}"
            "{{ messages[0].content[0].text }}!"
        ),
    ],
)
def test_a_template_that_takes_parts_gets_the_question_as_a_part(source):
    assert ChatTemplate(source, {}).wrap("Hi") == "Hi!"


@pytest.mark.parametrize(
    ("source", "wrapped"),
    [
        ("{{ messages[0].content | tojson(ensure_ascii=True) }}", r'"H\u00e9"'),
        ("{{ messages[0] | tojson(separators=(',', ':'), sort_keys=True) }}", '{"content":"Hé","role":"user"}'),
        ("{{ messages[0].content }}{%- generation -%} !{%- endgeneration -%}", "Hé!"),
    ],
)
def test_a_template_uses_what_transformers_offers(source, wrapped):
    assert ChatTemplate(source, {}).wrap("Hé") == wrapped


@pytest.mark.parametrize("failure", ["1 / 0", "'a'.index('z')", "10.0 ** 1000", "range(10 ** 9)"])
def test_a_question_with_which_a_template_fails_is_refused(failure):
    template = ChatTemplate(f"{{{{ messages[0].content }}}}{{% if fails %}}{{{{ {failure} }}}}{{% endif %}}", {})

    with pytest.raises(RefusedError, match="the chat template does not take 'Hi'"):
        template.wrap("Hi", {"fails": True})


def test_a_template_that_fails_with_every_question_is_refused_when_the_model_is_loaded():
    with pytest.raises(SettingsError, match="division by zero"):
        ChatTemplate("{{ 1 / 0 }}", {})


@pytest.mark.parametrize(
    "template",
    [
        "{% if tools is not none %}tools{% endif %}{{ messages[0].content }}",
        "{{ messages[0].content }}{% if tools is defined and tools is not none %}tools{% endif %}",
        "{% if documents is not none %}documents{% endif %}{{ messages[0].content }}",
        "{% if tools is none and documents is none %}plain {% endif %}{{ messages[0].content }}{{ tools | tojson }}",
    ],
)
def test_what_is_not_given_is_none_as_transformers_renders(template):
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = [{"role": "user", "content": "Hello"}]
    (theirs,), _ = render_jinja_template([messages], chat_template=template, add_generation_prompt=True)

    assert ChatTemplate(template, {}).render(messages) == theirs
