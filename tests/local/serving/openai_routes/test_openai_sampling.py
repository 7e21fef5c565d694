"""What controls the choice of tokens, by OpenAI's own client against the real Triton and OpenVINO GenAI."""

import json
import math

import openai
import pytest

from tests.local.serving.openai_server import OpenAiServer, client_of

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "sure": {"type": "boolean"}},
    "required": ["city", "sure"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": CITY}}]


@pytest.fixture(scope="module")
def client(api):
    with client_of(api) as made:
        yield made


def ask(client, **parameters):
    return client.chat.completions.create(model="demo", messages=ASKED, **{"max_tokens": 60, **parameters}).choices[0]


def text(client, **parameters):
    return ask(client, **parameters).message.content


@pytest.mark.parametrize("narrow", [{"top_p": 1e-6}, {"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 1}}])
def test_the_narrowest_choice_is_greedy_at_any_temperature(client, narrow):
    assert text(client, temperature=5, seed=3) != ANSWER
    assert text(client, temperature=5, seed=3, **narrow) == ANSWER


def test_an_answer_does_not_end_before_its_fewest_tokens(client):
    longer = client.chat.completions.create(model="demo", messages=ASKED, max_tokens=60, extra_body={"min_tokens": 20})

    assert longer.usage.completion_tokens >= 20
    assert longer.choices[0].message.content.startswith(ANSWER)


def test_an_answer_goes_on_behind_its_end_if_that_is_ignored(client):
    longer = client.chat.completions.create(
        model="demo", messages=ASKED, max_tokens=60, extra_body={"ignore_eos": True}
    )

    assert (longer.usage.completion_tokens, longer.choices[0].finish_reason) == (60, "length")
    assert longer.choices[0].message.content.startswith(ANSWER)


def test_stop_words_count_once_the_answer_has_its_fewest_tokens(client):
    at_once, later = (text(client, stop="France", extra_body={"min_tokens": least}) for least in (0, 12))

    assert at_once == "The capital of "
    assert later.startswith(ANSWER)


@pytest.mark.parametrize(
    "penalty",
    [{"presence_penalty": 2}, {"frequency_penalty": 2}, {"extra_body": {"repetition_penalty": 3, "min_tokens": 30}}],
)
def test_penalties_change_an_answer_that_repeats_itself(client, penalty):
    body = {"min_tokens": 30, **penalty.get("extra_body", {})}
    repeated, penalized = text(client, extra_body={"min_tokens": 30}), text(client, **{**penalty, "extra_body": body})

    assert repeated.count(ANSWER) > 1
    assert penalized != repeated


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_are_those_of_the_tokens_of_the_text(client, stream):
    answer = client.chat.completions.create(model="demo", messages=ASKED, logprobs=True, stream=stream)
    choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices
    entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]

    assert "".join(entry.token for entry in entries) == ANSWER
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == ANSWER
    assert all(-1 < entry.logprob < 0 for entry in entries)


def test_the_log_probability_of_a_likely_token_is_higher_than_that_of_an_unlikely_one(client):
    likely, unlikely = (
        ask(client, logprobs=True, temperature=temperature, seed=3).logprobs.content for temperature in (0, 5)
    )

    assert math.exp(likely[0].logprob) > 0.5
    assert min(entry.logprob for entry in unlikely) < min(entry.logprob for entry in likely)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_obeys_a_json_schema(client, stream):
    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
    # the demo's model was never taught JSON: without a penalty it writes blanks, which JSON allows without end
    answer = client.chat.completions.create(
        model="demo",
        messages=ASKED,
        response_format=schema,
        stream=stream,
        max_tokens=100,
        extra_body={"repetition_penalty": 3},
    )
    choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices
    found = json.loads("".join((choice.delta if stream else choice.message).content or "" for choice in choices))

    assert set(found) == {"city", "sure"}
    assert found["city"] in ("Paris", "Rome")
    assert isinstance(found["sure"], bool)
    assert choices[-1].finish_reason == "stop"


def test_an_answer_is_a_json_object_of_any_kind(client):
    answer = ask(client, response_format={"type": "json_object"})

    assert answer.message.content.lstrip().startswith("{")
    assert answer.finish_reason == "length" or isinstance(json.loads(answer.message.content), dict)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "string", "pattern": "(["},
        {"$ref": "#/$defs/none"},
        {"enum": []},
        {"type": "array", "minItems": 3, "maxItems": 1},
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(300)}},
    ],
)
def test_a_wrong_schema_is_refused_and_the_server_goes_on(client, server, schema):
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, response_format=wanted)
    status, told = server.generate(text_input="Hi", json_schema=json.dumps(schema))

    assert (refused.value.param, refused.value.code) == ("response_format", "invalid_json_schema")
    assert (status, "json_schema" in told["error"]) == (400, True)
    assert text(client) == ANSWER


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_p", 0.0), ("top_k", -1), ("presence_penalty", 2.5), ("repetition_penalty", 0.0), ("min_tokens", 300)],
)
def test_a_value_out_of_range_is_refused_by_tritons_own_routes_too(server, name, value):
    status, told = server.generate(text_input="Hi", max_tokens=5, **{name: value})

    assert (status, name in told["error"]) == (400, True)


CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}


@pytest.fixture(scope="module")
def without_tools(make_repository, start_server, tmp_path_factory):
    """A client of the same model with a chat template that has no word of tools."""
    repository = make_repository()
    template = repository / "demo" / "1" / "engine" / "chat_template.jinja"
    template.unlink(missing_ok=True)
    template.write_text("{% for message in messages %}<|user|>{{ message.content }}{% endfor %}<|assistant|>")
    server = start_server(repository)
    with OpenAiServer(server, tmp_path_factory.mktemp("plain")) as api, client_of(api) as made:
        yield made
    server.end()


@pytest.mark.parametrize(
    ("asked", "ignored"),
    [
        ({"tools": TOOLS}, "ignores tools"),
        ({"messages": [*ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}]}, "ignores tool_calls"),
    ],
)
def test_tools_are_refused_where_the_chat_template_ignores_them(without_tools, asked, ignored):
    with pytest.raises(openai.BadRequestError, match=ignored):
        without_tools.chat.completions.create(**{"model": "demo", "messages": ASKED, **asked})


def test_tools_go_through_the_chat_template_and_a_call_can_be_forced(client):
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Paris"}
    history = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}, result]
    plain, tools, called = (
        client.chat.completions.create(**{"model": "demo", "messages": ASKED, "max_tokens": 30, **more})
        for more in ({}, {"tools": TOOLS}, {"messages": history})
    )
    forced = client.chat.completions.create(
        model="demo",
        messages=ASKED,
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "look_up"}},
        max_tokens=100,
        temperature=30,
        seed=3,
    )
    (call,) = forced.choices[0].message.tool_calls

    assert plain.usage.prompt_tokens < tools.usage.prompt_tokens < called.usage.prompt_tokens
    assert (call.function.name, forced.choices[0].finish_reason) == ("look_up", "tool_calls")
    assert set(json.loads(call.function.arguments)) == {"city", "sure"}
