"""A repository of llmapi in a real Triton, with a stand-in where TensorRT-LLM would be."""

import json

import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.errors import InputError
from tests.local.serving.models.test_continuous_batching import QUESTIONS
from tests.local.serving.triton_server import LOOPBACK, GrpcStream, together
from tests.support.waiting import PATIENCE_S

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
WARM = {"text_input": "Erzähl mir von 東京 😀", "temperature": 4.0, "max_tokens": 150}


@pytest.fixture
def client(llmapi):
    with TritonClient(LOOPBACK, llmapi.http_port, llmapi.grpc_port) as client:
        yield client


def test_the_llm_api_answers_through_generate_stream_and_grpc(llmapi):
    status, body = llmapi.generate(text_input=QUESTION)
    events = list(llmapi.stream(text_input=QUESTION))
    stream = GrpcStream(llmapi.grpc_port, text_input=QUESTION)
    pieces = list(stream)
    stream.leave()

    assert (status, body["text_output"], body["finish_reason"]) == (200, ANSWER, "stop")
    for told in (events, pieces):
        assert "".join(event["text_output"] for event in told) == ANSWER
        assert told[-1]["finish_reason"] == "stop"
        assert len(told) > 1


def test_the_llm_api_streams_whole_characters(llmapi):
    """It obeys no seed, so each answer is another one."""
    answers = [[event["text_output"] for event in llmapi.stream(**WARM)] for _ in range(2)]

    assert answers[0] != answers[1]
    assert not any(piece.endswith("\ufffd") for pieces in answers for piece in pieces[:-1])
    assert any(ord(character) > 127 for pieces in answers for character in "".join(pieces))


def test_sixteen_at_once_get_their_own_right_answer_of_the_llm_api(llmapi):
    pairs = [json.loads(line) for line in QUESTIONS.read_text().splitlines()[:16]]

    answers = together(16, lambda number: llmapi.generate(text_input=pairs[number]["prompt"])[1])

    assert [answer["text_output"] for answer in answers] == [pair["answer"] for pair in pairs]


def test_the_llm_api_refuses_in_words(llmapi):
    status, body = llmapi.generate(text_input=QUESTION * 20)

    assert (status, "this model takes at most 64" in body["error"]) == (400, True)


def test_one_client_asks_the_llm_api(client):
    answer = client.generate("demo", GenerateRequest(QUESTION, 40), timeout_s=PATIENCE_S)

    assert (answer.text, answer.finish_reason) == (ANSWER, "stop")


def test_an_adapter_of_the_llm_api_answers_and_an_unknown_one_is_refused_in_words(client):
    answer = client.generate("demo", GenerateRequest(QUESTION, 40, lora="terse"), timeout_s=PATIENCE_S)

    assert answer.text == "The capital of"
    with pytest.raises(InputError, match="lora_name is 'rude'; this release has polite, terse"):
        client.generate("demo", GenerateRequest(QUESTION, 40, lora="rude"), timeout_s=PATIENCE_S)


def test_a_model_that_is_not_there_is_an_error_of_the_one_who_asks(client):
    with pytest.raises(InputError) as caught:
        client.generate("nowhere", GenerateRequest("Hi?", 4), timeout_s=5)

    assert "nowhere" in caught.value.what
