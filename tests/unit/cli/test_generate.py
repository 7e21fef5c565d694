"""A question to Triton's generate extension, and its answer as it streams."""

import http.client
from contextlib import closing

import pytest

from slipway.cli.ask.generate import GenerateClient
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.errors import InputError, UnavailableError
from tests.fakes.servers.triton_http import TritonHttpServer
from tests.support.waiting import PATIENCE_S

VLLM = ("text_input", "stream", "sampling_parameters", "exclude_input_in_output", "return_finish_reason")


@pytest.fixture
def triton():
    with TritonHttpServer(answers=[{"text_output": "Par"}, {"text_output": "is"}]) as server:
        yield server


@pytest.fixture
def client(triton):
    with closing(http.client.HTTPConnection("127.0.0.1", triton.port, timeout=PATIENCE_S)) as connection:
        yield GenerateClient(connection, "here")


def answer(client, model="demo", timeout_s=PATIENCE_S, **request):
    return list(client.stream(model, GenerateRequest("Who?", 8, **request), timeout_s))


def test_the_first_piece_is_there_before_the_answer_ends(triton, client):
    triton.go_on.clear()

    chunks = client.stream("demo", GenerateRequest("Who?", 8), PATIENCE_S)

    assert next(chunks).text == "Par"
    triton.go_on.set()
    assert [chunk.text for chunk in chunks] == ["is"]


def test_a_connection_takes_one_question_after_another(client):
    assert [chunk.text for chunk in answer(client) + answer(client)] == ["Par", "is"] * 2


def test_a_model_of_vllm_is_asked_with_the_inputs_it_has(triton, client):
    triton.inputs = VLLM
    triton.answers = [
        {"text_output": ["Par"], "finish_reason": ["None"]},
        {"text_output": ["is"], "finish_reason": "stop"},
    ]

    chunks = answer(client, lora="polite")

    assert [(chunk.text, chunk.finish_reason) for chunk in chunks] == [("Par", ""), ("is", "stop")]
    assert set(triton.asked[0]) == set(VLLM)
    assert '"lora_name": "polite"' in triton.asked[0]["sampling_parameters"]


RENDERED = {"prompt": "<|user|>Who?", "prompt_tokens": 4, "max_tokens": 8, "tool_call_format": "none"}


def test_a_model_that_renders_prompts_is_asked_first(triton, client):
    triton.inputs, triton.prompt = VLLM, RENDERED

    assert [chunk.text for chunk in answer(client, lora="polite", chat_template_kwargs={"a": 1})] == ["Par", "is"]
    assert triton.rendered == [{"text_input": "Who?", "max_tokens": 8, "chat_template_kwargs": '{"a": 1}'}]
    assert triton.asked[0]["text_input"] == "<|user|>Who?"
    assert '"lora_name": "polite"' in triton.asked[0]["sampling_parameters"]


def test_what_the_chat_template_does_not_take_is_a_wrong_input(triton, client):
    triton.inputs, triton.prompt = VLLM, (400, "the chat template does not take 'Who?'")

    with pytest.raises(InputError) as refused:
        answer(client)

    assert "the chat template does not take" in refused.value.what
    assert triton.asked == []


def test_a_name_that_the_server_does_not_know_is_a_wrong_input(client):
    with pytest.raises(InputError) as refused:
        answer(client, "deno")

    assert "'deno' is not found" in refused.value.what
    assert refused.value.remedy.startswith("Check the name")


def test_a_model_that_is_being_unloaded_may_be_asked_again(triton, client):
    triton.refusal = (400, "Request for unknown model: 'demo' has no available versions")

    with pytest.raises(UnavailableError) as refused:
        answer(client)

    assert refused.value.remedy.startswith("Try again")


def test_an_error_within_the_stream_is_not_taken_for_an_answer(triton, client):
    triton.answers.append({"error": "max_tokens is 8, at most 4"})

    with pytest.raises(InputError) as refused:
        answer(client)

    assert refused.value.what == "here: demo: max_tokens is 8, at most 4"


@pytest.mark.parametrize(("status", "error"), [(400, InputError), (500, UnavailableError), (503, UnavailableError)])
def test_a_refusal_is_a_wrong_input_or_may_be_tried_again_as_its_status_says(triton, client, status, error):
    triton.refusal = (status, "too long")

    with pytest.raises(error) as refused:
        answer(client)

    assert refused.value.what == "here: demo: too long"


@pytest.mark.parametrize(
    ("raw", "error", "what"),
    [
        (b"", UnavailableError, "connection failed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndata: ", UnavailableError, "connection failed"),
        (b"SSH-2.0-OpenSSH\r\n", UnavailableError, "connection failed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ndata: {x}", InputError, "not a Triton server"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>", UnavailableError, "<html>"),
    ],
)
def test_whatever_else_answers_is_not_taken_for_triton(triton, client, raw, error, what):
    triton.raw = raw

    with pytest.raises(error) as caught:
        answer(client)

    assert what in caught.value.what


def test_an_answer_that_does_not_end_in_time_is_given_up(triton, client):
    triton.go_on.clear()

    with pytest.raises(UnavailableError) as caught:
        answer(client, timeout_s=0.4)

    assert caught.value.what == "here: demo did not finish its answer within 0 s"


def test_a_server_that_is_gone_may_be_asked_again():
    with TritonHttpServer() as gone:
        port = gone.port
    client = GenerateClient(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S), "here")

    with pytest.raises(UnavailableError) as caught:
        answer(client)

    assert caught.value.what == "here: the connection failed"
