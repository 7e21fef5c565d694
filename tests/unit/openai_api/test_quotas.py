"""A quota of tokens refuses the key that used it up, says when to ask again, and leaves other keys alone."""

import asyncio
import json

import pytest

from slipway.tasks.contracts.api_keys import CLIENT_HEADER, MOST_KEYS
from slipway.tasks.serving.openai_api.generation.generate import Generation
from slipway.tasks.serving.openai_api.generation.inputs import Question, ServedModel
from slipway.tasks.serving.openai_api.generation.quotas import TokenQuotas
from slipway.tasks.serving.openai_api.http.errors import ApiError
from tests.unit.openai_api.test_routes import CHAT, HELLO, Triton, exchanged

QUOTAS = {"alice": 6, "*": 60}


class Seconds:
    """A clock that a test turns."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def asked(*paths, client="alice", names_clients=True, triton=None):
    """HELLO has 7 tokens."""
    headers = {CLIENT_HEADER: client}
    requests = [("POST", path, {**CHAT, "max_tokens": 9}) for path in paths]
    options = {"names_clients": names_clients, "quotas": QUOTAS, "clock": Seconds()}
    return exchanged(triton or Triton(HELLO), *requests, headers=headers, **options)


def test_an_answer_beyond_the_quota_is_the_last_one_and_the_refusal_says_when_to_ask_again():
    triton = Triton(HELLO)
    (first, _, _), (status, text, headers) = asked(*["/v1/chat/completions"] * 2, triton=triton)
    error = json.loads(text)["error"]

    assert (first, status, len(triton.asked)) == (200, 429, 1)
    assert (error["type"], error["code"]) == ("tokens", "rate_limit_exceeded")
    assert "6 tokens a minute" in error["message"]
    assert headers["Retry-After"] == "20"  # 2 tokens at 6 a minute


def test_anthropics_clients_read_a_rate_limit_in_their_own_words():
    _, (status, text, _) = asked("/v1/chat/completions", "/v1/messages")

    assert (status, json.loads(text)["error"]["type"]) == (429, "rate_limit_error")


@pytest.mark.parametrize(("client", "names_clients"), [("bob", True), ("", True), ("alice", False)])
def test_others_are_answered(client, names_clients):
    answers = asked(*["/v1/chat/completions"] * 3, client=client, names_clients=names_clients)

    assert [status for status, _, _ in answers] == [200] * 3


def test_a_bucket_fills_steadily_and_holds_what_a_minute_gives():
    seconds = Seconds()
    quotas = TokenQuotas({"alice": 60}, seconds)
    quotas.spend("alice", 100)
    with pytest.raises(ApiError) as caught:
        quotas.check("alice")
    assert caught.value.retry_after_s == 41

    seconds.now += 41
    quotas.check("alice")

    seconds.now += 3600
    quotas.spend("alice", 60)
    with pytest.raises(ApiError) as caught:
        quotas.check("alice")
    assert caught.value.retry_after_s == 1


def test_full_buckets_of_strangers_are_forgotten_and_debts_are_not():
    seconds = Seconds()
    quotas = TokenQuotas({"*": 60}, seconds)
    for number in range(MOST_KEYS - 1):
        quotas.spend(f"jwt:{number}", 1)
    quotas.spend("jwt:owing", 10_000)
    seconds.now += 60
    quotas.spend("jwt:next", 1)

    assert set(quotas._left) == {"jwt:owing", "jwt:next"}
    with pytest.raises(ApiError):
        quotas.check("jwt:owing")


@pytest.mark.parametrize(
    ("client", "label"), [("alice", "alice"), ("bob", "bob"), ("jwt:a", "jwt:a"), ("jwt:b", "jwt:*"), ("", "")]
)
def test_metrics_name_keys_and_subjects_that_have_a_quota(client, label):
    assert TokenQuotas({"jwt:a": 60, "*": 60}, Seconds()).label_of(client) == label


def test_the_prompt_that_another_model_makes_is_counted_by_its_messages():
    assert Question({"temperature": 0}, {"text_input": "", "messages": LONG}).prompt_tokens == 25_000


LONG = "a" * 100_000


@pytest.mark.parametrize(
    ("question", "pieces", "longest", "used"),
    [
        (Question({}), ["a"] * 9, None, 9),
        (Question({}), ["a" * 80, "é" * 20, ""], None, 20 + 10 + 1),
        (Question({"text_input": LONG}), ["a"], None, 25_001),
        (Question({"text_input": "", "messages": LONG}), ["a"], None, 25_001),
        (Question({"text_input": "", "prompt_ids": [7] * 500}), ["a"], None, 501),
        (Question({"text_input": LONG}), ["a"], 2_048, 2_049),
    ],
)
def test_who_leaves_before_the_end_has_used_the_prompt_and_what_arrived(question, pieces, longest, used):
    async def run():
        triton = Triton([[{"text_output": text, "finish_reason": ""} for text in pieces], *HELLO])
        generation = Generation(triton, Seconds(), {"alice": 6})
        model = ServedModel("demo", frozenset(), frozenset(), max_input_tokens=longest)
        answers = generation.answers(model, [question], 1, "alice")
        await anext(answers)
        await answers.aclose()
        try:
            await anext(generation.answers(model, [question], 1, "alice"))
        finally:
            await generation.close()

    with pytest.raises(ApiError, match="tokens a minute") as caught:
        asyncio.run(run())
    assert caught.value.retry_after_s == (1 + used - 6) * 10
