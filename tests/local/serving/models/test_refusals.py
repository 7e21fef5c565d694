import pytest
from tritonclient import http

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.errors import InputError, UnavailableError
from tests.local.serving.triton_server import LOOPBACK, GrpcStream, tensors

QUESTION = "What is the capital of France?"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text_input": QUESTION * 20}, "tokens long, chat template included; this model takes at most 64"),
        ({"text_input": ""}, "the prompt is empty"),
        ({"text_input": QUESTION, "max_tokens": 0}, "max_tokens is 0; expected at least 1"),
        ({"text_input": QUESTION, "max_tokens": 250}, "this model holds 256"),
        ({"text_input": QUESTION, "temperature": -1.0}, "temperature is -1.0"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_in_words(server, inputs, message):
    status, body = server.generate(**inputs)

    assert status == 400
    assert message in body["error"]


def test_a_stream_is_refused_with_its_first_event(server):
    stream = server.stream(text_input=QUESTION * 20)

    assert stream.status == 400
    assert ["error" in event for event in stream] == [True]


def test_a_grpc_stream_is_refused_too(server):
    stream = GrpcStream(server.grpc_port, text_input=QUESTION, max_tokens=0)
    _, error = stream.arrived.get(timeout=30)
    stream.leave()

    assert "max_tokens is 0; expected at least 1" in error.message()


@pytest.mark.parametrize(("text", "message"), [(QUESTION, "max_tokens is 0"), ("x" * 90_000, "90000 bytes long")])
def test_the_model_that_stands_in_passes_a_refusal_on_with_its_status(server, text, message):
    client = http.InferenceServerClient(f"{LOOPBACK}:{server.http_port}")
    with pytest.raises(http.InferenceServerException, match=message) as refused:
        client.infer("demo_whole_answer", tensors(http, text_input=text, max_tokens=0))

    assert refused.value.status() == "400"
    assert server.generate(model="demo_whole_answer", text_input=text, max_tokens=0)[0] == 400


def test_the_pipelines_own_client_says_what_to_do_about_a_refusal(server):
    with (
        TritonClient(LOOPBACK, server.http_port, server.grpc_port) as client,
        pytest.raises(InputError) as caught,
    ):
        client.generate("demo", GenerateRequest(QUESTION, 0), timeout_s=30)

    assert "expected at least 1" in caught.value.what
    assert caught.value.remedy == "Keep the request within the limits of the spec's engine part."


def test_the_pipelines_own_client_says_what_to_do_where_nobody_answers():
    with (
        TritonClient(LOOPBACK, 9, 9) as client,
        pytest.raises(UnavailableError) as caught,
    ):
        list(client.stream("demo", GenerateRequest(QUESTION, 8), timeout_s=5))

    assert caught.value.remedy.startswith("Check that the server is up and its model is ready")
