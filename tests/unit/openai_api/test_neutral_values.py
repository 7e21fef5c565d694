"""Values that ask for nothing pass, whoever's parameter it is: the table against what upstream's own files list."""

import json

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from slipway.tasks.serving.openai_api.generation.inputs import chat_question, completion_questions
from slipway.tasks.serving.openai_api.http.errors import ApiError
from slipway.tasks.serving.openai_api.requests.neutral import (
    CHAT,
    COMPLETIONS,
    PARAMETERS,
    WITHOUT_EFFECT,
    neutral_values,
)
from slipway.tasks.serving.openai_api.requests.openai import ChatRequest, CompletionRequest, read_chat, read_completion
from tests.contracts.recorded import contract
from tests.unit.openai_api.models import model_of

ROUTES = {
    CHAT: {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]},
    COMPLETIONS: {"model": "demo", "prompt": "Hi"},
}
ONLY_NULL = {
    *("audio", "moderation", "reasoning_effort", "web_search_options"),
    *("allowed_token_ids", "cache_salt", "chat_template", "prompt_embeds", "prompt_logprobs", "structured_outputs"),
    *("truncate_prompt_tokens", "agent_hierarchy", "conversation_params", "disaggregated_params", "early_stopping"),
    *("injected_chat_template_kwargs", "lora_request", "prompt_token_ids", "prompt_token_ids_b64", "thinking"),
    *("thinking_token_budget",),
}
"""Parameters of which every value but null asks for something."""
RECORDS = {
    "vllm_chat_request.yaml": CHAT,
    "vllm_completion_request.yaml": COMPLETIONS,
    "tensorrt_llm_chat_request.yaml": CHAT,
    "tensorrt_llm_completion_request.yaml": COMPLETIONS,
}


def inputs(route, **parameters):
    """What the model is asked with."""
    body = json.dumps({**ROUTES[route], **parameters}).encode()
    if route == CHAT:
        return chat_question(read_chat(body), model_of()).inputs
    return [question.inputs for question in completion_questions(read_completion(body), model_of())]


@pytest.mark.parametrize(
    ("route", "name", "value"),
    [
        (route, parameter.name, value)
        for parameter in PARAMETERS
        for route in sorted(parameter.routes)
        for value in (*parameter.values, None)
    ],
)
def test_a_parameter_that_asks_for_nothing_changes_nothing(route, name, value):
    assert inputs(route, **{name: value}) == inputs(route)


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
@pytest.mark.parametrize("route", ROUTES)
def test_names_of_a_request_have_no_effect(route, name):
    assert inputs(route, **{name: "x"}) == inputs(route)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("value", [3, "zebra", {"zebra": 3}, ["zebra"]])
def test_any_other_value_is_refused_by_the_parameters_name(route, value):
    fields = {CHAT: ChatRequest, COMPLETIONS: CompletionRequest}[route].model_fields
    for name in neutral_values(route).keys() - fields.keys():
        with pytest.raises(ApiError) as refused:
            inputs(route, **{name: value})
        assert (refused.value.param, refused.value.code) == (name, "unsupported_parameter")


@pytest.mark.parametrize(("record", "route"), RECORDS.items())
def test_every_default_of_another_server_asks_for_nothing(record, route):
    """A client that writes each parameter out with its default is served as one that writes none."""
    defaults = {name: field["default"] for name, field in contract(record)["fields"].items() if "default" in field}

    assert inputs(route, **defaults) == inputs(route)


@pytest.mark.parametrize(("record", "route"), RECORDS.items())
def test_every_parameter_of_another_server_is_in_the_table(record, route):
    fields = {CHAT: ChatRequest, COMPLETIONS: CompletionRequest}[route].model_fields
    known = {*fields, *neutral_values(route), *WITHOUT_EFFECT, *ONLY_NULL}

    assert contract(record)["fields"].keys() <= known


@pytest.mark.parametrize(
    ("parameters", "route"),
    [
        (chat_create_params.CompletionCreateParamsBase, CHAT),
        (completion_create_params.CompletionCreateParamsBase, COMPLETIONS),
    ],
)
def test_every_parameter_of_openai_s_package_is_in_the_table(parameters, route):
    fields = {CHAT: ChatRequest, COMPLETIONS: CompletionRequest}[route].model_fields
    known = {*fields, *neutral_values(route), *WITHOUT_EFFECT, *ONLY_NULL}

    assert parameters.__annotations__.keys() <= known


def test_true_is_not_one():
    with pytest.raises(ApiError) as refused:
        inputs(CHAT, n=True)

    assert refused.value.param == "n"
