"""OpenAI's own client against a release on the laptop: the front, OpenAI's API and the real Triton."""

import json

import openai
import pytest
from tokenizers import Tokenizer

from tests.local.serving.openai_server import RELEASE, client_of
from tests.local.serving.served_engine import CHECKPOINT
from tests.support import plain_http

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
ASKED = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def client(api):
    with client_of(api) as made:
        yield made


def test_the_models_are_those_of_the_release(client):
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").owned_by == "slipway"


def test_a_conversation_is_answered_with_its_number_of_tokens(client):
    answer = client.chat.completions.create(model="demo", messages=ASKED)
    (choice,) = answer.choices

    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", ANSWER, "stop")
    assert answer.system_fingerprint == RELEASE
    assert answer.usage.prompt_tokens > 3
    assert answer.usage.completion_tokens > 3
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_is_the_same_answer_in_pieces(client):
    whole = client.chat.completions.create(model="demo", messages=ASKED)
    chunks = list(
        client.chat.completions.create(
            model="demo", messages=ASKED, stream=True, stream_options={"include_usage": True}
        )
    )
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]

    assert chunks[0].choices[0].delta.role == "assistant"
    assert ("".join(texts), len([text for text in texts if text]) > 1) == (ANSWER, True)
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == "stop"
    assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_ends_as_the_protocol_says(api):
    body = {"model": "demo", "messages": ASKED, "stream": True}
    response = plain_http.post(f"{api.url}/v1/chat/completions", json=body)
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line]

    assert response.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "[DONE]"
    assert all("usage" not in json.loads(event) for event in events[:-1])


def test_messages_go_through_the_models_own_chat_template(client, server):
    history = [*ASKED, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": QUESTION}]
    by_hand = f"<s><|user|>{QUESTION}<|assistant|>{ANSWER}</s><|user|>{QUESTION}<|assistant|>"
    chat = client.chat.completions.create(model="demo", messages=history, max_tokens=40)
    _, raw = server.generate(text_input="", messages=json.dumps(history), max_tokens=40)

    assert chat.choices[0].message.content == raw["text_output"]
    assert chat.usage.prompt_tokens == raw["prompt_tokens"] > len(by_hand.split())


def test_parts_of_a_message_are_one_text(client):
    parts = [{"type": "text", "text": QUESTION[:10]}, {"type": "text", "text": QUESTION[10:]}]
    answer = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": parts}])

    assert answer.choices[0].message.content == ANSWER


def test_a_completion_continues_the_prompt_as_it_is(client):
    continued = client.completions.create(model="demo", prompt=f"<|user|>{QUESTION}<|assistant|>", max_tokens=40)

    plain = client.completions.create(model="demo", prompt=QUESTION, max_tokens=1)
    chat = client.chat.completions.create(model="demo", messages=ASKED, max_tokens=1)

    assert continued.choices[0].text == ANSWER
    assert continued.usage.prompt_tokens == chat.usage.prompt_tokens == plain.usage.prompt_tokens + 2


def test_a_prompt_of_token_ids_is_continued_like_its_text(client, server):
    text = f"<|user|>{QUESTION}<|assistant|>"
    ids = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")).encode(text).ids
    answer = client.completions.create(model="demo", prompt=[ids, ids], max_tokens=40)

    assert [choice.text for choice in answer.choices] == [ANSWER, ANSWER]
    assert answer.usage.prompt_tokens == 2 * len(ids)
    with pytest.raises(openai.BadRequestError, match="the prompt has the token 1000000") as refused:
        client.completions.create(model="demo", prompt=[1_000_000])
    assert refused.value.param == "prompt"


def test_a_streamed_completion_is_the_same_text(client):
    asked = {"model": "demo", "prompt": f"<|user|>{QUESTION}<|assistant|>", "max_tokens": 40}
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))

    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == ANSWER
    assert chunks[-1].usage == client.completions.create(**asked).usage


def test_a_completion_without_max_tokens_has_sixteen_at_most(client):
    answer = client.completions.create(model="demo", prompt="Tell me everything.", temperature=8.0, seed=3)

    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (16, "length")


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_an_answer_ends_at_its_most_tokens(client, limit):
    answer = client.chat.completions.create(model="demo", messages=ASKED, **{limit: 3})

    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("The capital of", "length")
    assert answer.usage.completion_tokens == 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("stop", "text"), [(" France", "The capital of"), (["zebra", "is"], "The capital of France ")])
def test_an_answer_ends_before_a_stop_word(client, stop, text, stream):
    answer = client.chat.completions.create(model="demo", messages=ASKED, stop=stop, stream=stream)
    choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices
    texts = [(choice.delta if stream else choice.message).content or "" for choice in choices]

    assert ("".join(texts), choices[-1].finish_reason) == (text, "stop")


def test_a_seed_repeats_an_answer_at_a_temperature(client):
    answers = [
        client.chat.completions.create(model="demo", messages=ASKED, temperature=3.0, seed=seed, max_tokens=24)
        for seed in (7, 7, 8)
    ]
    texts = [answer.choices[0].message.content for answer in answers]

    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("store", True),
        ("logit_bias", {"3": 1}),
        ("top_logprobs", 2),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_parameter_that_the_engine_cannot_obey_is_refused_by_its_name(client, parameter, value, stream):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model="demo", messages=ASKED, stream=stream, **{"logprobs": True, parameter: value}
        )

    assert (refused.value.param, refused.value.code) == (parameter, "unsupported_parameter")
    assert f"does not support {parameter}" in refused.value.message


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_the_model_refuses_says_why(client, stream):
    with pytest.raises(openai.BadRequestError, match="prompt and max_tokens together") as refused:
        client.chat.completions.create(model="demo", messages=ASKED, max_tokens=100_000, stream=stream)

    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "max_tokens")


def test_a_model_that_does_not_exist_is_not_found(client):
    with pytest.raises(openai.NotFoundError, match="there is demo") as missing:
        client.chat.completions.create(model="gpt-4", messages=ASKED)

    assert missing.value.code == "model_not_found"


def test_a_wrong_request_names_the_parameter(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="demo", messages=[{"role": "user", "content": 3}])

    assert refused.value.param.startswith("messages[0].content")


def test_a_route_that_does_not_exist_is_an_error_in_the_same_form(api):
    response = plain_http.post(f"{api.url}/v1/audio/speech", json={})

    assert (response.status_code, set(response.json()["error"])) == (404, {"message", "type", "param", "code"})


def test_tritons_own_routes_stay_on_the_same_port(api):
    response = plain_http.post(f"{api.url}/v2/models/demo/generate", json={"text_input": QUESTION})

    assert response.json()["text_output"] == ANSWER
