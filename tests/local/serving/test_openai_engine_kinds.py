"""OpenAI's API over the repositories of GPU engine kinds, with stand-ins where TensorRT-LLM and vLLM would be."""

import json

import openai
import pytest

from tasks.contracts.wire.json_schema import grammar_of
from tests.local.serving.openai_server import client_of

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
ASKED = [{"role": "user", "content": QUESTION}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(params=["five_api", "both_api"])
def client(request):
    """A client of trt-engine's and of llmapi's model, which are called demo."""
    with client_of(request.getfixturevalue(request.param)) as made:
        yield made


@pytest.fixture
def vllm(vllm_api):
    with client_of(vllm_api) as made:
        yield made


def test_a_conversation_is_answered_whole_and_streamed_with_the_same_usage(client):
    whole = client.chat.completions.create(model="demo", messages=ASKED)
    chunks = list(client.chat.completions.create(model="demo", messages=ASKED, **USAGE))

    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (ANSWER, "stop")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ANSWER
    assert chunks[-1].usage == whole.usage
    assert whole.usage.completion_tokens > 3


def test_every_turn_counts(client):
    history = [*ASKED, {"role": "assistant", "content": ANSWER}, *ASKED]
    one, more = (
        client.chat.completions.create(model="demo", messages=asked, max_tokens=1) for asked in (ASKED, history)
    )

    # question and answer again, their two roles and the end of the answer; the beginning stays one
    assert more.usage.prompt_tokens > 2 * one.usage.prompt_tokens


def test_a_prompt_is_continued_without_the_chat_template(client):
    plain = client.completions.create(model="demo", prompt=QUESTION, max_tokens=1)
    chat = client.chat.completions.create(model="demo", messages=ASKED, max_tokens=1)

    assert chat.usage.prompt_tokens == plain.usage.prompt_tokens + 2


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_before_a_stop_word(client, stream):
    answer = client.chat.completions.create(model="demo", messages=ASKED, stop=[" France"], stream=stream)
    choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices
    texts = [(choice.delta if stream else choice.message).content or "" for choice in choices]

    assert ("".join(texts), choices[-1].finish_reason) == ("The capital of", "stop")


def test_what_the_model_refuses_is_a_bad_request(client):
    with pytest.raises(openai.BadRequestError, match="prompt and max_tokens together"):
        client.chat.completions.create(model="demo", messages=ASKED, max_tokens=100_000)


def test_vllm_is_told_every_parameter_and_counts_tokens(vllm):
    asked = {"model": "other", "prompt": "Once upon", "max_tokens": 7, "top_p": 0.5, "stop": ["x"], "seed": 3}
    whole = vllm.completions.create(**asked, extra_body={"top_k": 4})
    chunks = list(vllm.completions.create(**asked, extra_body={"top_k": 4}, **USAGE))

    told = "'Once upon' max_tokens=7 seed=3 stop=['x'] temperature=0 top_k=4 top_p=0.5 "
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == (told, "length")
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == told
    assert chunks[-1].usage == whole.usage
    assert whole.usage.prompt_tokens > 2
    assert whole.usage.completion_tokens == len(told.split())


CHAT = "<|user|>What is the capital of France?<|assistant|>"


@pytest.mark.parametrize("stream", [False, True])
def test_vllm_is_asked_with_the_chat_template_and_told_every_parameter(vllm, stream):
    asked = {"model": "other", "messages": ASKED, "max_tokens": 7, "top_p": 0.5, "stop": ["x"], "seed": 3}
    options = {"stream": stream, **({"stream_options": USAGE["stream_options"]} if stream else {})}
    answer = vllm.chat.completions.create(**asked, **options, extra_body={"top_k": 4})
    chunks = list(answer) if stream else []
    whole = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    told = f"{CHAT!r} max_tokens=7 seed=3 stop=['x'] temperature=0 top_k=4 top_p=0.5 "
    assert (whole if stream else answer.choices[0].message.content) == told
    assert (chunks[-2] if stream else answer).choices[0].finish_reason == "length"
    usage = (chunks[-1] if stream else answer).usage
    # <s>, which the template writes and vLLM's tokenizer adds, is read once
    assert usage.prompt_tokens == vllm.completions.create(model="other", prompt=CHAT).usage.prompt_tokens
    assert usage.completion_tokens == len(told.split())


def test_vllm_reads_every_turn(vllm):
    history = [{"role": "system", "content": "Be brief."}, *ASKED, {"role": "assistant", "content": ANSWER}, *ASKED]
    answer = vllm.chat.completions.create(model="other", messages=history, max_tokens=7)

    told = f"<|user|>Be brief.{CHAT}{ANSWER}</s>{CHAT}"
    assert answer.choices[0].message.content == f"{told!r} max_tokens=7 temperature=0 "


def test_a_chat_with_vllm_has_the_checkpoints_own_limit_and_not_that_of_vllm(vllm):
    answer = vllm.chat.completions.create(model="other", messages=ASKED)

    assert answer.choices[0].message.content == f"{CHAT!r} max_tokens=48 temperature=0 "


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"messages": ASKED, "max_tokens": 100_000}, "prompt and max_tokens together"),
        ({"messages": ASKED, "max_tokens": 3, "extra_body": {"min_tokens": 4}}, "min_tokens is 4"),
        ({"messages": [{"role": "user", "content": QUESTION * 20}]}, "this model takes at most 64"),
        ({"messages": ASKED, "extra_body": {"chat_template_kwargs": {"tools": "x"}}}, "may not set 'tools'"),
    ],
)
def test_what_the_chat_template_or_the_room_does_not_allow_is_a_bad_request_to_vllm(vllm, asked, message):
    with pytest.raises(openai.BadRequestError, match=message):
        vllm.chat.completions.create(model="other", **asked)


def test_tools_reach_vllm_through_the_chat_template_and_a_forced_call_as_a_schema(vllm):
    asked = {"model": "other", "messages": ASKED, "tools": [TOOL], "max_tokens": 7}
    choice = {"type": "function", "function": {"name": "weather"}}
    free, forced = (vllm.chat.completions.create(**asked, **more) for more in ({}, {"tool_choice": choice}))
    schema = json.dumps({"grammar": grammar_of(json.dumps(TOOL["function"]["parameters"]))})

    prompt = f"weather{CHAT}"
    assert free.choices[0].message.content == f"{prompt!r} max_tokens=7 temperature=0 "
    # the stand-in answers with what it was asked; a forced call takes any answer for its arguments
    (call,) = forced.choices[0].message.tool_calls
    told = f"{prompt!r} max_tokens=7 structured_outputs={schema} temperature=0"
    assert (call.function.name, call.function.arguments) == ("weather", told)


@pytest.mark.parametrize("stream", [False, True])
def test_vllm_reports_logprobs_and_obeys_a_schema_in_a_chat(vllm, stream):
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}
    asked = {"messages": ASKED, "max_tokens": 3, "logprobs": True, "response_format": schema, "stream": stream}
    answer = vllm.chat.completions.create(model="other", **asked)
    choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices

    assert {each.logprob for choice in choices if choice.logprobs for each in choice.logprobs.content} == {-0.5}
    texts = [(choice.delta if stream else choice.message).content or "" for choice in choices]
    grammar = json.dumps({"grammar": grammar_of('{"type": "integer"}')})
    assert f"structured_outputs={grammar}" in "".join(texts)


def test_adapters_are_listed_as_models_and_answer_by_their_names(client):
    answer = client.chat.completions.create(model="demo:terse", messages=ASKED)
    chunks = list(client.chat.completions.create(model="demo:terse", messages=ASKED, stream=True))

    assert [model.id for model in client.models.list()] == ["demo", "demo:polite", "demo:terse"]
    described = client.models.retrieve("demo:terse").model_extra
    assert (described["root"], described["parent"], described["max_model_len"] > 0) == ("terse", "demo", True)
    assert ANSWER.startswith(answer.choices[0].message.content)
    assert (answer.model, answer.choices[0].message.content != ANSWER) == ("demo:terse", True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer.choices[0].message.content


def test_an_adapter_that_the_release_lacks_is_not_found(client):
    with pytest.raises(openai.NotFoundError, match="there is demo, demo:polite, demo:terse"):
        client.chat.completions.create(model="demo:rude", messages=ASKED)


def test_vllm_is_told_the_adapter_among_its_parameters(vllm):
    answer = vllm.completions.create(model="other:polite", prompt="Once upon", max_tokens=7)

    assert [model.id for model in vllm.models.list()] == ["other", "other:polite"]
    assert answer.choices[0].text == "'Once upon' lora_name=polite max_tokens=7 temperature=0 "


@pytest.mark.parametrize("stream", [False, True])
def test_an_adapter_of_vllm_answers_a_chat(vllm, stream):
    answer = vllm.chat.completions.create(model="other:polite", messages=ASKED, max_tokens=7, stream=stream)
    choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices
    texts = [(choice.delta if stream else choice.message).content or "" for choice in choices]

    assert "".join(texts) == f"{CHAT!r} lora_name=polite max_tokens=7 temperature=0 "


def test_vllm_adapters_that_a_release_lacks_are_not_found(vllm):
    with pytest.raises(openai.NotFoundError, match="there is other, other:polite"):
        vllm.chat.completions.create(model="other:rude", messages=ASKED)
