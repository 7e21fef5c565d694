"""docs/openai.md says what each engine kind obeys: the table against the configurations that are rendered."""

import functools
import json
import re

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS
from slipway.tasks.contracts.engine.sampling import SAMPLING_NAMES
from slipway.tasks.serving.openai_api.generation.inputs import chat_question, completion_questions
from slipway.tasks.serving.openai_api.http.errors import ApiError
from slipway.tasks.serving.openai_api.requests.openai import read_chat, read_completion
from slipway.tasks.serving.rendered.repository import render
from tests.support.paths import REPOSITORY
from tests.unit.openai_api.models import model_of
from tests.unit.serving.rendered.test_gpu_repositories import VALUES

PAGE = (REPOSITORY / "docs" / "openai.md").read_text()
KINDS = ("openvino", "trt-engine", "llmapi", "vllm")
EVERY = re.search(r"^Every kind obeys (.*?)\.\n\n", PAGE, re.MULTILINE | re.DOTALL)[1].replace("\n", " ").split("; ")
TABLE = re.findall(r"^\| (.*) \| (yes|no) \| (yes|no) \| (yes|no) \| (yes|no) \|$", PAGE, re.MULTILINE)
SAID = [(name, *["yes"] * len(KINDS)) for name in EVERY] + TABLE
"""Each parameter of the page, and whether each kind obeys it."""
SCHEMA = {"response_format": {"type": "json_object"}}
TOOLS = {"tools": [{"type": "function", "function": {"name": "f"}}]}
ASKED = {
    "`messages` (`/v1/chat/completions`)": None,
    "`prompt` as token ids, also several (`/v1/completions`)": {"prompt": [[1, 2], [3]]},
    "`max_tokens`, `max_completion_tokens`": {"max_tokens": 3},
    "`temperature`, 0 when absent": {"temperature": 1.0},
    "`seed`, at a temperature above 0": {"temperature": 1.0, "seed": 3},
    "`stop`, at most 16": {"stop": ["."]},
    "`top_p`": {"top_p": 0.5},
    "`top_k`": {"top_k": 3},
    "`min_p`": {"min_p": 0.5},
    "`ignore_eos`": {"ignore_eos": True},
    "`min_tokens`": {"min_tokens": 3},
    "`presence_penalty`": {"presence_penalty": 1.0},
    "`frequency_penalty`": {"frequency_penalty": 1.0},
    "`repetition_penalty`": {"repetition_penalty": 1.5},
    "`bad_words`, at most 64": {"bad_words": ["x"]},
    "`logprobs`": {"logprobs": 0},
    "`top_logprobs`, at most 20": {"logprobs": 2},
    "`response_format`": SCHEMA,
    "`response_format`, with `engine.options.guided_decoding_backend`": SCHEMA,
    "`tools`": TOOLS,
    "`parallel_tool_calls: false`": {**TOOLS, "parallel_tool_calls": False},
    "`reasoning_effort`, where the chat template takes it": {"reasoning_effort": "low"},
    "`tool_choice`: `required` or a function": {**TOOLS, "tool_choice": "required"},
    "`logit_bias`, from -100 to 100 for at most 1,024 tokens": {"logit_bias": {"3": 1}},
    "`n`, at most 128 answers to all prompts": {"n": 2},
    "`echo` (`/v1/completions`)": {"prompt": "Hi", "echo": True},
    "`echo` with `logprobs`; openvino: with `engine.options.prompt_logprobs`": {
        "prompt": [3, 4],
        "echo": True,
        "logprobs": 1,
        "max_tokens": 1,
    },
}
OPTIONS = {"guided_decoding_backend": "xgrammar", "scores_prompts": True}
"""Values of the templates that an option of the engine sets, for rows that name one."""


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """Inputs and outputs of a kind's model."""

    @functools.cache
    def model(kind, *, with_options=False):
        folder = tmp_path_factory.mktemp("repository")
        options = OPTIONS if with_options else {}
        values = {**VALUES, "scheduler": {}, "properties": {}, "options": options, **options}
        render(REPOSITORY / "model_repository_templates", kind, values, folder)
        config = text_format.Parse((folder / "demo" / "config.pbtxt").read_text(), ModelConfig())
        return model_of([each.name for each in config.input], [each.name for each in config.output])

    return model


def refused_for(model, asked):
    """The parameter for which the model refuses the request, in each route that has it; None if it takes it."""
    asked = asked or {}
    chat = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], **asked}
    if "logprobs" in asked:
        chat |= {"logprobs": True, "top_logprobs": asked["logprobs"]}
    found = set() if "prompt" in asked else {_refusal(chat_question, read_chat, chat, model)}
    if asked and not {"tools", "reasoning_effort"} & {*asked}:
        found.add(_refusal(completion_questions, read_completion, {"model": "demo", "prompt": "Hi", **asked}, model))
    # one of the two routes calls it by another name
    (one,) = {"logprobs" if each == "top_logprobs" else each for each in found}
    return one


def _refusal(inputs, read, request, model):
    try:
        inputs(read(json.dumps(request).encode()), model)
    except ApiError as error:
        return error.param
    return None


def test_the_page_has_a_column_for_every_kind_and_names_every_parameter_once():
    assert set(KINDS) == set(ENGINE_KINDS)
    assert sorted(row[0] for row in SAID) == sorted(ASKED)


@pytest.mark.parametrize("row", SAID, ids=lambda row: row[0])
def test_a_kind_obeys_what_the_page_says(rendered, row):
    name, *said = row
    guided, with_options = "guided_decoding_backend" in name, "engine.options" in name
    kinds = [kind for kind in KINDS if not guided or kind in {"llmapi", "trt-engine"}]
    found = {kind: refused_for(rendered(kind, with_options=with_options), ASKED[name]) for kind in kinds}

    assert {kind: each is None for kind, each in found.items()} == {
        kind: word == "yes" for kind, word in zip(KINDS, said, strict=True) if kind in kinds
    }
    assert set(found.values()) <= {None, "messages", *(ASKED[name] or ())}


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_of_kinds_says_the_same_of_questions_of_a_gate(rendered, kind):
    """A spec is refused by what slipway/tasks/contracts/engine/engine_kinds.py says, a request by the configuration that is rendered."""
    parameters = {name: value for asked in ASKED.values() if asked for name, value in asked.items()}
    model = rendered(kind)
    asked = {name: {name: parameters[name]} for name in SAMPLING_NAMES}
    asked["seed"] |= {"temperature": 1.0}

    assert {name for name in asked if refused_for(model, asked[name]) is None} == ENGINE_KINDS[kind].sampling
