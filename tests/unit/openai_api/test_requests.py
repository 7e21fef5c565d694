"""What becomes of each parameter of a request: served, without effect, or refused by its name."""

import json
from dataclasses import replace

import pytest

from slipway.tasks.serving.openai_api.generation.inputs import chat_question, completion_questions
from slipway.tasks.serving.openai_api.http.errors import ApiError
from slipway.tasks.serving.openai_api.requests.anthropic import read_messages
from slipway.tasks.serving.openai_api.requests.openai import read_chat, read_completion
from slipway.tasks.serving.openai_api.requests.responses import read_response
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml
from tests.unit.openai_api.models import OURS, VLLM, VLLM_OUTPUTS, model_of

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def chat(model=None, **parameters):
    request = read_chat(json.dumps({"model": "demo", "messages": MESSAGES, **parameters}).encode())
    return chat_question(request, model or model_of()).inputs


def completion(model=None, **parameters):
    request = read_completion(json.dumps({"model": "demo", "prompt": "Once", **parameters}).encode())
    (question,) = completion_questions(request, model or model_of())
    return question.inputs


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


@pytest.mark.parametrize(
    ("parameter", "asked"),
    [
        ("top_logprobs", {"logprobs": True, "top_logprobs": 2}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": "required"}),
    ],
)
def test_a_parameter_that_needs_another_one_is_refused_beside_it(parameter, asked):
    assert refused(chat, model=model_of((*OURS, "tools", "logprobs")), **asked).param == parameter


def test_all_unsupported_parameters_are_named_together():
    error = refused(chat, suffix="x", best_of=3, mirostat=2)

    assert "does not support" in error.message
    assert all(name in error.message for name in ("suffix", "best_of", "mirostat"))


def test_true_is_not_one():
    assert refused(chat, n=True).param == "n"
    assert refused(chat, logprobs=0).param == "logprobs"


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
    switches = set(VLLM) - {"text_input", "sampling_parameters", "return_logprobs"}
    assert inputs == {"text_input": "Once", **dict.fromkeys(switches, True)}


def test_triton_s_vllm_backend_reports_log_probabilities():
    inputs = completion(model_of(VLLM, VLLM_OUTPUTS), logprobs=2, bad_words=["x"])
    sampling = json.loads(inputs["sampling_parameters"])

    assert inputs["return_logprobs"] is True
    assert (sampling["logprobs"], sampling["bad_words"]) == (2, ["x"])
    older = model_of(set(VLLM) - {"return_logprobs"}, VLLM_OUTPUTS)
    assert refused(completion, model=older, logprobs=1).param == "logprobs"


def test_a_seed_asks_for_nothing_of_a_greedy_answer():
    model = model_of(set(OURS) - {"seed"})

    assert chat(model, seed=3) == chat(model)
    assert refused(chat, model=model, seed=3, temperature=0.5).param == "seed"


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
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": "x", "audio": {}}]}, "messages[0].audio"),
        ({"messages": [{"role": "user", "content": None, "tool_calls": [CALL]}]}, "messages[0]"),
        ({"tools": [{"type": "function", "function": {"name": "two words"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"bad_words": [""]}, "bad_words"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "tools": TOOLS, "tool_choice": "required"}, "response_format"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_tokens": 2**31}, "max_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"top_p": -0.5}, "top_p"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"other": True}}, "stream_options.other"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
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


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([1, -2], "prompt[1]"),
        ([1, 2**31], "prompt[1]"),
        ([1, "a"], "prompt[1]"),
        ([1, 2.5], "prompt[1]"),
        ([1, True], "prompt[1]"),
        ([[1], []], "prompt[1]"),
        ([[1], [2, [3]]], "prompt[1][1]"),
        ([[1], 2], "prompt[1]"),
        (["a", ""], "prompt[1]"),
        ([], "prompt"),
        ("", "prompt"),
        ({}, "prompt"),
    ],
)
def test_prompts_that_are_wrong_or_empty_are_refused_at_their_place(prompt, param):
    assert refused(completion, prompt=prompt).param == param


@pytest.mark.parametrize(
    ("prompt", "ids"), [([1, 2], [[1, 2]]), ([[1, 2], [3]], [[1, 2], [3]]), (["a", [3]], [None, [3]])]
)
def test_prompts_of_token_ids_reach_the_model_as_they_are(prompt, ids):
    """The three forms that OpenAI's reference has for `prompt`; EleutherAI's lm-evaluation-harness sends ids."""
    request = read_completion(json.dumps({"model": "demo", "prompt": prompt}).encode())
    questions = [question.inputs for question in completion_questions(request, model_of())]

    assert [inputs.get("prompt_ids") for inputs in questions] == ids
    assert all(bool(inputs["text_input"]) != ("prompt_ids" in inputs) for inputs in questions)


@pytest.mark.parametrize("inputs", [VLLM, ("text_input", "apply_chat_template", "max_tokens", "stream")])
def test_token_ids_are_refused_by_a_model_that_was_released_before_they_were_taken(inputs):
    assert refused(completion, model=model_of(inputs), prompt=[1, 2]).param == "prompt"


def test_each_prompt_of_a_list_is_a_question_of_its_own():
    request = read_completion(json.dumps({"model": "demo", "prompt": ["a", "b"], "seed": 3}).encode())

    assert [question.inputs["text_input"] for question in completion_questions(request, model_of())] == ["a", "b"]


def test_more_answers_than_the_limit_are_refused():
    assert refused(completion, prompt=["a"] * 65, n=2).param == "n"
    assert refused(chat, n=129).param == "n"


def test_a_negative_seed_stands_for_one_that_engines_take():
    model = model_of(VLLM, VLLM_OUTPUTS)

    assert chat(seed=-1)["seed"] == json.loads(completion(model, seed=-1)["sampling_parameters"])["seed"] == 2**63 - 1


SCORES = model_of((*OURS, "logprobs", "top_logprobs", "prompt_logprobs"))


@pytest.mark.parametrize(
    ("prompt", "asked"),
    [
        ([[7] * 550] * 128, {"logprobs": 20}),
        ([7] * 550, {"n": 128, "logprobs": 20}),
        ("x" * 600, {"n": 128, "logprobs": 1}),
    ],
)
def test_more_log_probabilities_of_prompts_than_a_process_can_keep_are_refused(prompt, asked):
    error = refused(completion, model=SCORES, prompt=prompt, echo=True, temperature=1, **asked)

    assert (error.param, str(131072) in error.message) == ("echo", True)


def test_a_prompt_is_scored_as_lm_evaluation_harness_asks():
    asked = completion(SCORES, prompt=[[7] * 32768], echo=True, logprobs=1, max_tokens=1)

    assert (asked["prompt_logprobs"], len(asked["prompt_ids"])) == (1, 32768)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
ODD = {"type": "text", "text": "x", "zebra": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    ("parameters", "param", "named"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, IMAGE]}]}, "type", "image_url"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, ODD]}]}, "zebra", ""),
        ({"chat_template_kwargs": {"a": [1]}}, "chat_template_kwargs.a", "[1]"),
        ({"tools": [*TOOLS, *TOOLS]}, "tools", ""),
        ({"messages": [{"role": "user", "content": ["x", {"type": "text"}]}]}, "messages[0].content[0]", ""),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "3"),
        ({"stop": ["x", ""]}, "stop[1]", "''"),
        ({"stop": 3}, "stop", "3"),
    ],
)
def test_an_error_within_a_union_names_the_offender_and_no_branch(parameters, param, named):
    error = refused(chat, **parameters)

    assert error.param.endswith(param)
    assert error.param in error.message
    assert named in error.message


def test_a_remedy_is_named_only_where_there_is_one():
    nowhere, elsewhere = refused(chat, verbosity="low"), refused(chat, top_k=3)

    assert "no engine kind does" in nowhere.message
    assert "docs/openai.md" in elsewhere.message


def test_an_error_never_repeats_a_whole_value():
    error = refused(chat, temperature="x" * 10_000)

    assert len(error.message) < 300


GUIDED = model_of((*OURS, "json_schema", "tools", "logprobs"))


def schema_of(**parameters):
    return json.loads(chat(GUIDED, **parameters)["json_schema"])


def test_a_response_format_becomes_a_schema():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    described = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}

    assert schema_of(response_format=described) == schema
    assert schema_of(response_format={"type": "json_object"}) == {"type": "object", "additionalProperties": True}


def test_a_function_that_must_be_called_makes_the_answer_its_arguments():
    parameters = {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": "boolean"}}}
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("f", "g")]
    named = schema_of(tools=tools, tool_choice={"type": "function", "function": {"name": "g"}})
    any_of_them = schema_of(tools=tools, tool_choice="required")

    assert named == parameters
    assert [each["properties"]["name"] for each in any_of_them["anyOf"]] == [{"const": "f"}, {"const": "g"}]
    assert any_of_them["$defs"] == parameters["$defs"]


def test_tools_and_calls_reach_the_chat_template_as_objects():
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "1", "tool_call_id": "call_1"},
    ]
    inputs = chat(GUIDED, messages=turns, tools=TOOLS)
    sent = json.loads(inputs["messages"])

    assert json.loads(inputs["tools"]) == TOOLS
    assert (sent[1]["content"], sent[1]["tool_calls"][0]["function"]["arguments"]) == ("", {"a": 1})
    assert sent[2] == {**turns[2], "name": "f"}
    assert "tools" not in chat(GUIDED, tools=TOOLS, tool_choice="none")


@pytest.mark.parametrize("choice", [None, "auto"])
def test_a_schema_beside_tools_is_refused_because_no_tool_could_be_called(choice):
    wanted = {"response_format": {"type": "json_object"}, "tools": TOOLS}

    assert refused(chat, model=GUIDED, **wanted, tool_choice=choice).param == "response_format"
    assert schema_of(**wanted, tool_choice="none")


def test_vllm_is_sent_names_that_it_has():
    record = load_yaml((REPOSITORY / "tests" / "contracts" / "vllm_sampling_parameters.yaml").read_text())
    asked = {
        "top_p": 0.5,
        "top_k": 3,
        "min_tokens": 2,
        "stop": ["x"],
        "seed": 1,
        "temperature": 1.0,
        "logprobs": 1,
        "presence_penalty": 1,
        "frequency_penalty": 1,
        "repetition_penalty": 2,
        "bad_words": ["y"],
    }
    request = read_completion(json.dumps({"model": "demo", "prompt": "Once", **asked}).encode())
    (question,) = completion_questions(request, model_of(VLLM, VLLM_OUTPUTS))
    sent = set(json.loads(question.obeying("root ::= [a]").inputs["sampling_parameters"]))

    assert sent == {*asked, "max_tokens", "structured_outputs"}
    assert sent <= set(record["fields"])


@pytest.mark.parametrize("described", [1, None, "x", [], {"name": "x"}, {"schema": 3}, {"schema": {}, "odd": 1}])
def test_a_wrong_response_format_is_refused_by_name(described):
    error = refused(chat, response_format={"type": "json_schema", "json_schema": described})

    assert (error.status, error.param) == (400, "response_format")


@pytest.mark.parametrize("value", [r'"\ud800"', "1e999", "1" + "0" * 400, "[" * 50 + "]" * 50])
def test_a_call_with_arguments_beyond_json_s_bounds_is_refused_by_its_place(value):
    call = {**CALL, "function": {"name": "f", "arguments": f'{{"a": {value}}}'}}
    error = refused(chat, messages=[*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]}])

    assert (error.status, error.param) == (400, "messages[2].tool_calls[0].function.arguments")


@pytest.mark.parametrize(("result", "name"), [({}, "g"), ({"name": "own"}, "own"), ({"tool_call_id": "call_9"}, None)])
def test_a_result_names_the_function_of_the_call_with_its_id(result, name):
    calls = [CALL, {**CALL, "id": "call_2", "function": {"name": "g"}}]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    answered = {"role": "tool", "tool_call_id": "call_2", "content": "42", **result}
    sent = json.loads(chat(messages=[*MESSAGES, said, answered])["messages"])

    assert (sent[-1].get("name"), sent[-1]["content"]) == (name, "42")


def test_arguments_of_all_calls_are_counted_together_before_any_are_read():
    beyond = {**CALL, "function": {"name": "f", "arguments": "[" * 50 + "]" * 50}}
    full = {**CALL, "function": {"name": "f", "arguments": f"[{'[],' * 33_000}1]"}}
    calls = {"role": "assistant", "content": None, "tool_calls": [beyond, *[full] * 4]}
    error = refused(chat, messages=[*MESSAGES, calls])

    assert (error.status, error.param, "100000 values" in str(error)) == (400, "messages", True)
    assert chat(messages=[*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [full, CALL]}])


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        (read_chat, {"messages": [{}, {}]}),
        (read_chat, {"messages": [{"role": "user", "content": [{}, {}]}]}),
        (read_chat, {"messages": [{"role": "assistant", "tool_calls": [{}, {}]}]}),
        (read_chat, {"messages": MESSAGES, "tools": [{}, {}]}),
        (read_completion, {"prompt": [1, "a", "b"]}),
        (read_completion, {"prompt": [[1, "a", "b"], [2, "c"]]}),
        (read_messages, {"max_tokens": 1, "messages": [{}, {}]}),
        (read_messages, {"max_tokens": 1, "messages": [{"role": "user", "content": [{}, {}]}]}),
        (read_messages, {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "system": [{}, {}]}),
        (read_messages, {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "tools": [{}, {}]}),
        (read_messages, {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "stop_sequences": [1, 2]}),
        (read_response, {"input": [{}, {}]}),
        (read_response, {"input": [{"role": "user", "content": [{}, {}]}]}),
        (read_response, {"input": [{"type": "reasoning", "summary": [{}, {}]}]}),
        (read_response, {"input": [{"type": "reasoning", "content": [{}, {}]}]}),
        (read_response, {"input": "x", "tools": [{}, {}]}),
        (read_response, {"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [{}, {}]}]}),
    ],
)
def test_a_list_is_left_at_its_first_wrong_item(read, wrong):
    error = refused(lambda: read(json.dumps({"model": "demo", **wrong}).encode()))
    items = {tuple(part for part in each["loc"] if isinstance(part, int)) for each in error.__cause__.errors()}

    assert len(items) == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"model": "demo", "seed": 1%s}' % ("0" * 400),
        '{"model": "demo", "temperature": NaN}',
        '{"model": "\\ud800"}',
        '{"model": ' + "[" * 5000 + "]" * 5000 + "}",
        '{"model": "demo", "messages": [%s1]}' % ("1," * 200_000),
    ],
)
def test_a_body_beyond_json_s_bounds_is_refused(text):
    with pytest.raises(ApiError, match=r"^the request "):
        read_chat(text.encode())


def test_more_messages_than_the_limit_are_refused():
    error = refused(chat, messages=[MESSAGES[1]] * 5000)

    assert (error.status, error.param) == (400, "messages")


def test_a_text_that_no_tokenizer_could_make_short_enough_is_not_handed_on():
    model = replace(model_of(), max_input_tokens=256)
    long = [{"role": "user", "content": [{"type": "text", "text": "é" * 40_000}] * 2}]
    errors = [
        refused(lambda **_: chat(model, messages=long)),
        refused(lambda **_: completion(model, prompt="é" * 80_000)),
    ]

    assert [(error.status, error.param, error.code) for error in errors] == [
        (400, "messages", "context_length_exceeded"),
        (400, "prompt", "context_length_exceeded"),
    ]
    assert completion(model, prompt="x" * 131_072)["text_input"]
