"""The client of `slipway ask` against the real Triton."""

import http.client
from contextlib import closing
from functools import partial

import pytest

from slipway.cli.ask.generate import GenerateClient
from slipway.cli.ask.prompt_inputs import Sampling, prompt_inputs
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.errors import InputError
from tests.local.serving.triton_server import LOOPBACK
from tests.support.waiting import PATIENCE_S

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."


@pytest.fixture
def client(server):
    with closing(http.client.HTTPConnection(LOOPBACK, server.http_port, timeout=PATIENCE_S)) as connection:
        yield GenerateClient(connection, "triton")


def test_an_answer_arrives_in_pieces_and_says_how_it_ended(client):
    chunks = list(client.stream("demo", GenerateRequest(QUESTION, 40), 30))

    assert "".join(chunk.text for chunk in chunks) == ANSWER
    assert len(chunks) > 1
    assert chunks[-1].finish_reason == "stop"


def test_a_conversation_is_answered_and_its_tokens_are_counted(client):
    messages = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
    messages.append({"role": "user", "content": QUESTION})

    pieces = list(client.pieces("demo", partial(prompt_inputs, "demo", messages, Sampling(40)), 30))

    assert "".join(piece.text for piece in pieces).strip()
    assert 0 < pieces[-1].tokens <= 40


def test_a_stop_word_ends_the_answer_before_it(client):
    pieces = list(client.pieces("demo", partial(prompt_inputs, "demo", QUESTION, Sampling(40, stop=(" is",))), 30))

    assert "".join(piece.text for piece in pieces) == "The capital of France"


def test_an_option_that_the_model_lacks_is_refused_by_name(client):
    inputs = partial(prompt_inputs, "demo", QUESTION, Sampling(40, lora="fr"))

    with pytest.raises(InputError) as refused:
        list(client.pieces("demo", inputs, 30))

    assert refused.value.what == "demo does not support --lora"


def test_a_model_that_cannot_stream_answers_in_one_piece(client):
    chunks = list(client.stream("demo_whole_answer", GenerateRequest(QUESTION, 40), 30))

    assert [(chunk.text, chunk.finish_reason) for chunk in chunks] == [(ANSWER, "stop")]


def test_a_name_that_triton_does_not_know_is_a_wrong_input(client):
    with pytest.raises(InputError) as refused:
        list(client.stream("no-such-model", GenerateRequest(QUESTION, 40), 30))

    assert "'no-such-model' is not found" in refused.value.what
    assert refused.value.remedy.startswith("Check the name")


def test_a_request_that_the_model_refuses_says_why(client):
    with pytest.raises(InputError) as caught:
        list(client.stream("demo", GenerateRequest(QUESTION, 100_000), 30))

    assert caught.value.what.startswith("triton: demo: prompt and max_tokens together")
