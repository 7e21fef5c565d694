"""Arguments of a chat template: from the release, from a request, and what the template makes of them."""

import importlib.util
import json
import sys
from types import ModuleType

import pytest
from generation.model_files.chat_template import ChatTemplate
from generation.model_files.hf_tokenizer import HuggingFaceTokenizer
from generation.requests.question import Question, RefusedError
from generation.requests.template_arguments import GIVEN, read_arguments
from generation.settings import read_settings
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from slipway.tasks.contracts.spec_fields import TEMPLATE_NAMES
from slipway.tasks.serving.rendered.repository import render
from tests.support.paths import HUB, REPOSITORY
from tests.unit.serving.conversations.test_questions_and_settings import arguments as settings_of
from tests.unit.serving.rendered.test_gpu_repositories import VALUES

TEMPLATES = REPOSITORY / "model_repository_templates"
CHECKPOINT = HUB / "slipway" / "demo-llama" / "v1"
THINKS = "{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking %} /quick{% endif %}"
AWKWARD = {"enable_thinking": False, "effort": 'a "low" <one> é', "budget": 7, "share": 0.5}
ANSWERING = {"llmapi": "demo", "openvino": "demo", "trt-engine": "demo_preprocessing"}
"""The model that wraps prompts, by kind."""
ASKED = [("llmapi", "demo"), ("openvino", "demo"), ("openvino", "demo_whole_answer")]
ASKED += [("trt-engine", "demo"), ("trt-engine", "demo_preprocessing")]


def config(kind, model, folder, **values):
    render(TEMPLATES, kind, {**VALUES, "scheduler": {}, "properties": {}, **values}, folder)
    return text_format.Parse((folder / model / "config.pbtxt").read_text(), ModelConfig())


EFFORT = "{{ messages[0].content }} ({{ reasoning_effort }})"


@pytest.mark.parametrize(
    ("source", "arguments", "prompt"),
    [
        (EFFORT, {"reasoning_effort": "low"}, "Hi (low)"),
        (EFFORT, {"reasoning_effort": "none"}, "Hi (none)"),
        (THINKS, {"reasoning_effort": "none"}, "Hi /quick"),
        ("{{ messages[0].content }}", {"reasoning_effort": "none"}, "Hi"),
        (THINKS, {"reasoning_effort": "none", "enable_thinking": True}, "Hi"),
    ],
)
def test_an_effort_reaches_a_template_that_takes_it_or_switches_thoughts(source, arguments, prompt):
    """https://github.com/sgl-project/sglang/pull/20556, https://github.com/ggml-org/llama.cpp/pull/26045"""
    assert ChatTemplate(source, {}).wrap("Hi", arguments) == prompt


@pytest.mark.parametrize(("source", "effort"), [(THINKS, "low"), ("{{ messages[0].content }}<think>", "none")])
def test_an_effort_that_a_template_would_ignore_is_refused(source, effort):
    """https://github.com/vllm-project/vllm/issues/39581: it is ignored there without a word."""
    with pytest.raises(RefusedError, match="reasoning_effort has no effect"):
        ChatTemplate(source, {}).wrap("Hi", {"reasoning_effort": effort})


def test_a_request_overrides_the_releases_arguments():
    template = ChatTemplate(THINKS, {}, {"enable_thinking": False})

    assert template.wrap("Hi") == "Hi /quick"
    assert template.wrap("Hi", {"enable_thinking": True}) == "Hi"


def test_arguments_never_replace_what_serving_gives_to_a_template():
    template = ChatTemplate("{{ bos_token }}{{ messages[0].content }}", {"bos_token": "<s>"}, {"bos_token": "x"})

    assert template.wrap("Hi", {"messages": "x"}) == "<s>Hi"


@pytest.mark.parametrize("kind", ANSWERING)
def test_a_releases_arguments_reach_the_server_as_they_are(kind, tmp_path):
    rendered = config(kind, ANSWERING[kind], tmp_path, chat_template_kwargs=AWKWARD)
    values = {name: parameter.string_value for name, parameter in rendered.parameters.items()}
    (tmp_path / "3" / "engine").mkdir(parents=True)
    settings = read_settings(settings_of(tmp_path, chat_template_kwargs=values["chat_template_kwargs"]))

    assert settings.template_arguments() == AWKWARD


@pytest.mark.parametrize("kind", ANSWERING)
def test_a_release_without_arguments_has_no_parameter_for_them(kind, tmp_path):
    assert "chat_template_kwargs" not in config(kind, ANSWERING[kind], tmp_path, chat_template_kwargs={}).parameters
    (tmp_path / "3" / "engine").mkdir(parents=True)
    assert read_settings(settings_of(tmp_path)).template_arguments() == {}


@pytest.mark.parametrize(("kind", "model"), ASKED)
def test_every_model_that_answers_takes_a_requests_arguments(kind, model, tmp_path):
    (taken,) = [tensor for tensor in config(kind, model, tmp_path).input if tensor.name == "chat_template_kwargs"]

    assert (taken.optional, list(taken.dims)) == (True, [1])


@pytest.mark.parametrize("chat", [True, False])
def test_the_checkpoints_tokenizer_wraps_with_arguments_and_refuses_them_without_a_template(chat, tmp_path):
    for file in CHECKPOINT.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").write_text(THINKS)
    tokenizer = HuggingFaceTokenizer(tmp_path, chat=chat)
    if chat:
        assert tokenizer.encode("Hi", {"enable_thinking": False}) == tokenizer.encode("Hi /quick")
    else:
        with pytest.raises(RefusedError, match="applies no chat template"):
            tokenizer.encode("Hi", {"enable_thinking": False})


def test_names_that_are_not_free_are_the_same_in_specs_and_requests():
    assert GIVEN == TEMPLATE_NAMES


def test_a_requests_arguments_are_an_object_of_texts_numbers_and_switches():
    assert read_arguments(json.dumps(AWKWARD)) == AWKWARD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[" * 90 + "]" * 90, "levels deep"),
        ("[1]", "expected a JSON object"),
        (json.dumps({f"a{number}": 1 for number in range(21)}), "at most 20 members"),
        ('{"messages": "x"}', "may not set 'messages'"),
        ('{"a b": 1}', "may not set 'a b'"),
        ('{"a": null}', "for a; expected a text"),
        (r'{"a": "\ud800"}', "half a surrogate pair"),
        ('{"a": 1e999}', "too large for a double"),
        ('{"a": NaN}', "is not valid JSON"),
        ('{"a": {"b": 1}}', "for a; expected a text"),
        (json.dumps({"a": "x" * 1001}), "at most 1000 characters"),
        (json.dumps({"a": 10**400}), "whole numbers are from"),
    ],
)
def test_other_arguments_are_refused(text, message):
    with pytest.raises(RefusedError, match=message):
        read_arguments(text)


class OpenVinoGenAi:
    """A tokenizer of OpenVINO GenAI 2026.4, as far as a question goes. It renders no template."""

    chat_template = THINKS

    def get_vocab(self):
        return {b"Hi": 0}

    def encode(self, text, *, add_special_tokens):
        ids = ModuleType("ids")
        ids.data = [text.encode()]
        return type("Encoded", (), {"input_ids": ids})


def test_openvinos_tokenizer_wraps_with_arguments_and_refuses_them_without_a_template(openvino, tmp_path):
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }} {{ effort }} {{ a }}")
    wraps = openvino.OpenVinoTokenizer(OpenVinoGenAi(), tmp_path, chat=True, arguments={"effort": "low"})
    plain = openvino.OpenVinoTokenizer(OpenVinoGenAi(), tmp_path, chat=False)

    assert bytes(wraps.encode("Hi", {"a": 1})).decode() == "Hi low 1"
    assert bytes(wraps.encode("Hi")).decode() == "Hi low "
    assert bytes(plain.encode("Hi")).decode() == "Hi"
    with pytest.raises(RefusedError, match="applies no chat template"):
        plain.encode("Hi", {"a": 1})


class _Tensor:
    def __init__(self, value):
        self.value = value

    def as_numpy(self):
        import numpy as np

        return np.array([self.value], dtype=object)


def test_a_request_becomes_a_question_with_its_arguments(monkeypatch):
    backend = ModuleType("triton_python_backend_utils")
    backend.get_input_tensor_by_name = lambda request, name: request.get(name)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    service = TEMPLATES / "shared" / "generation" / "service.py"
    spec = importlib.util.spec_from_file_location("service_of_this_test", service)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    asked = {"text_input": _Tensor(b"Hi"), "chat_template_kwargs": _Tensor(b'{"enable_thinking": false}')}

    assert module.question_of(asked) == Question("Hi", template_arguments={"enable_thinking": False})
    assert module.question_of({"text_input": _Tensor(b"Hi")}) == Question("Hi")
