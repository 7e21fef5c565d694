"""What becomes of each parameter of a request: served, without effect, or refused by its name."""

import json

import pytest

from tasks.serving.openai_api.errors import ApiError
from tasks.serving.openai_api.inputs import chat_inputs, completion_inputs
from tasks.serving.openai_api.requests import NEUTRAL, read_chat, read_completion
from tests.unit.openai_api.models import OURS, VLLM, VLLM_OUTPUTS, model_of

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
ASKED_FOR_MORE = {
    "n": 2,
    "top_p": 0.9,
    "presence_penalty": 0.1,
    "frequency_penalty": -0.1,
    "repetition_penalty": 1.1,
    "min_tokens": 1,
    "top_k": 1,
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"3": 1},
    "response_format": {"type": "json_object"},
    "modalities": ["audio"],
    "tools": [{"type": "function"}],
    "tool_choice": "required",
    "parallel_tool_calls": "perhaps",
    "functions": [{}],
    "function_call": {"name": "f"},
    "store": True,
    "service_tier": "priority",
    "best_of": 2,
    "echo": True,
    "suffix": "x",
}


def chat(model=None, **parameters):
    request = read_chat(json.dumps({"model": "demo", "messages": MESSAGES, **parameters}).encode())
    return chat_inputs(request, model or model_of())


def completion(model=None, **parameters):
    request = read_completion(json.dumps({"model": "demo", "prompt": "Once", **parameters}).encode())
    return completion_inputs(request, model or model_of())


def refused(ask, **parameters):
    with pytest.raises(ApiError) as caught:
        ask(**parameters)
    return caught.value


def test_messages_reach_the_model_as_they_are():
    inputs = chat()

    assert json.loads(inputs.pop("messages")) == MESSAGES
    assert inputs == {"text_input": "", "stream": True}


def test_a_prompt_is_not_put_into_a_chat_template():
    assert completion() == {"text_input": "Once", "apply_chat_template": False, "stream": True, "max_tokens": 16}
    assert completion(prompt=["Once"])["text_input"] == "Once"


def test_parameters_of_every_model_are_inputs_of_their_own():
    asked = {"max_completion_tokens": 5, "temperature": 0.5, "seed": 7, "stop": "."}
    inputs = {name: value for name, value in chat(**asked).items() if name not in ("messages", "text_input")}

    assert inputs == {"stream": True, "max_tokens": 5, "temperature": 0.5, "seed": 7, "stop_words": ["."]}


def test_every_parameter_that_can_ask_for_more_is_tried():
    assert set(ASKED_FOR_MORE) == set(NEUTRAL)


@pytest.mark.parametrize("parameter", NEUTRAL)
def test_a_parameter_that_the_model_cannot_obey_is_refused_by_its_name(parameter):
    error = refused(chat, **{parameter: ASKED_FOR_MORE[parameter]})

    assert (error.status, error.param, error.code) == (400, parameter, "unsupported_parameter")


@pytest.mark.parametrize("parameter", NEUTRAL)
def test_a_parameter_that_asks_for_nothing_changes_nothing(parameter):
    for value in (*NEUTRAL[parameter], None):
        assert chat(**{parameter: value}) == chat()


def test_all_unsupported_parameters_are_named_together():
    error = refused(chat, tools=[{}], n=3, mirostat=2)

    assert "does not support" in error.message
    assert all(name in error.message for name in ("tools", "n", "mirostat"))


def test_true_is_not_one():
    assert refused(chat, n=True).param == "n"
    assert refused(chat, logprobs=0).param == "logprobs"


@pytest.mark.parametrize("parameter", ["user", "metadata", "safety_identifier", "prompt_cache_key"])
def test_names_of_a_request_have_no_effect(parameter):
    assert chat(**{parameter: "x"}) == chat()


def test_a_model_that_declares_a_parameter_gets_it():
    assert chat(model_of((*OURS, "top_p", "top_k")), top_p=0.5, top_k=3)["top_p"] == 0.5
    assert refused(chat, model=model_of((*OURS, "top_p")), top_p=0.5, top_k=3).param == "top_k"


def test_arguments_of_the_chat_template_reach_a_model_that_takes_them():
    arguments = {"enable_thinking": False, "tone": "plain"}

    assert json.loads(chat(chat_template_kwargs=arguments)["chat_template_kwargs"]) == arguments
    assert chat(chat_template_kwargs={}) == chat()
    older = model_of(set(OURS) - {"chat_template_kwargs"})
    assert refused(chat, model=older, chat_template_kwargs=arguments).param == "chat_template_kwargs"


def test_stop_words_are_refused_by_the_name_that_the_client_sent():
    assert refused(chat, model=model_of(set(OURS) - {"stop_words"}), stop=["x"]).param == "stop"


def test_usage_of_a_stream_is_refused_where_the_model_counts_no_tokens():
    asked = {"stream": True, "stream_options": {"include_usage": True}}

    assert chat(**asked) == chat()
    assert refused(chat, model=model_of(OURS, ("text_output",)), **asked).param == "stream_options.include_usage"


def test_triton_s_vllm_backend_takes_the_parameters_as_one_text():
    asked = {"top_p": 0.5, "top_k": 3, "min_tokens": 2, "stop": ["x"], "seed": 1, "presence_penalty": 1}
    inputs = completion(model_of(VLLM, VLLM_OUTPUTS), **asked)

    assert json.loads(inputs.pop("sampling_parameters")) == {"temperature": 0, "max_tokens": 16, **asked}
    assert inputs == {"text_input": "Once", **dict.fromkeys(set(VLLM) - {"text_input", "sampling_parameters"}, True)}
    assert refused(completion, model=model_of(VLLM, VLLM_OUTPUTS), logprobs=1).param == "logprobs"


@pytest.mark.parametrize("inputs", [VLLM, ("text_input", "max_tokens", "stream", "temperature", "seed")])
def test_a_model_without_a_chat_template_refuses_messages_and_says_what_to_do(inputs):
    error = refused(chat, model=model_of(inputs))

    assert error.param == "messages"
    assert "/v1/completions" in error.message


def test_a_model_of_an_older_release_refuses_a_raw_prompt():
    assert "Release it again" in refused(completion, model=model_of(("text_input", "stream"))).message


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": []}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0].content"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_tokens": 2**31}, "max_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"seed": -1}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"top_p": 0}, "top_p"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"other": True}}, "stream_options.other"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(parameters, param):
    error = refused(chat, **parameters)

    assert error.status == 400
    assert error.param.startswith(param)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"model": "demo"}', b"[" * 100_000])
def test_what_is_no_request_is_refused(body):
    for read in (read_chat, read_completion):
        with pytest.raises(ApiError) as caught:
            read(body)
        assert caught.value.status == 400


def test_prompts_that_are_tokens_or_many_are_refused():
    for prompt in ([1, 2], ["a", "b"], [], ""):
        assert refused(completion, prompt=prompt).param.startswith("prompt")


def test_an_error_never_repeats_a_whole_value():
    error = refused(chat, temperature="x" * 10_000)

    assert len(error.message) < 300
