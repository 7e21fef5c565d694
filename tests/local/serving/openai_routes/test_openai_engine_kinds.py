"""OpenAI's API over the repositories of GPU engine kinds, with stand-ins where TensorRT-LLM would be."""

import openai
import pytest

from tests.local.serving.openai_server import client_of

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
ASKED = [{"role": "user", "content": QUESTION}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(params=["five_api", "llmapi_api"])
def client(request):
    """A client of trt-engine's and of llmapi's model, which are called demo."""
    with client_of(request.getfixturevalue(request.param)) as made:
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
