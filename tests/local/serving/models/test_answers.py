import json

import pytest
from tritonclient import http

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from tests.local.serving.triton_server import LOOPBACK, GrpcStream, tensors, text_of
from tests.support.waiting import PATIENCE_S

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."


def test_generate_gives_the_whole_answer(server):
    status, body = server.generate(text_input=QUESTION)

    assert (status, body["text_output"], body["finish_reason"]) == (200, ANSWER, "stop")


def test_the_pieces_of_a_stream_are_the_whole_answer(server):
    events = list(server.stream(text_input=QUESTION))

    assert "".join(event["text_output"] for event in events) == ANSWER
    assert len(events) > 1
    assert [event["finish_reason"] for event in events] == [""] * (len(events) - 1) + ["stop"]


def test_the_pieces_of_a_grpc_stream_are_the_whole_answer_too(server):
    stream = GrpcStream(server.grpc_port, text_input=QUESTION)
    events = list(stream)
    stream.leave()

    assert "".join(event["text_output"] for event in events) == ANSWER
    assert len(events) > 1
    assert [event["finish_reason"] for event in events] == [""] * (len(events) - 1) + ["stop"]


def test_tritonclient_http_is_answered_by_the_model_that_stands_in(server):
    client = http.InferenceServerClient(f"{LOOPBACK}:{server.http_port}")
    result = client.infer("demo_whole_answer", tensors(http, text_input=QUESTION, max_tokens=40))

    assert (text_of(result, "text_output"), text_of(result, "finish_reason")) == (ANSWER, "stop")


def test_triton_itself_refuses_http_inference_on_the_streaming_model(server):
    client = http.InferenceServerClient(f"{LOOPBACK}:{server.http_port}")

    with pytest.raises(http.InferenceServerException, match="decoupled"):
        client.infer("demo", tensors(http, text_input=QUESTION))


def test_the_pipelines_own_client_gets_answer_and_stream(server):
    with TritonClient(LOOPBACK, server.http_port, server.grpc_port) as client:
        whole = client.generate("demo", GenerateRequest(QUESTION, 40), timeout_s=PATIENCE_S)
        chunks = list(client.stream("demo", GenerateRequest(QUESTION, 40), timeout_s=PATIENCE_S))

    assert (whole.text, whole.finish_reason) == (ANSWER, "stop")
    assert ("".join(chunk.text for chunk in chunks), chunks[-1].finish_reason) == (ANSWER, "stop")


def test_a_questions_parameters_reach_the_model(server):
    warm = {"temperature": 5.0, "seed": 3}
    with TritonClient(LOOPBACK, server.http_port, server.grpc_port) as client:

        def text(**parameters):
            return client.generate("demo", GenerateRequest(QUESTION, 40, **parameters), timeout_s=PATIENCE_S).text

        assert text(sampling={"stop": [" France", "Paris"]}) == "The capital of"
        assert text(**warm) != ANSWER
        assert text(**warm, sampling={"top_k": 1}) == text(**warm, sampling={"top_p": 1e-6}) == ANSWER
        assert len(text(sampling={"min_tokens": 30})) > len(ANSWER)
        assert text(sampling={"repetition_penalty": 20.0}) != ANSWER


def test_max_tokens_ends_an_answer(server):
    _, body = server.generate(text_input=QUESTION, max_tokens=3)

    assert (body["text_output"], body["finish_reason"]) == ("The capital of", "length")


def test_a_seed_repeats_a_warm_answer_and_another_seed_does_not(server):
    answers = [server.generate(text_input=QUESTION, temperature=3.0, seed=seed, max_tokens=24)[1] for seed in (7, 7, 8)]

    assert answers[0]["text_output"] == answers[1]["text_output"] != answers[2]["text_output"]


def test_a_warm_answer_without_a_seed_is_not_always_the_same(server):
    texts = {server.generate(text_input=QUESTION, temperature=3.0, max_tokens=24)[1]["text_output"] for _ in range(4)}

    assert len(texts) > 1


def test_a_stream_of_random_bytes_is_the_text_of_the_whole_answer(server):
    asked = {"text_input": "Erzähl mir von 東京 😀", "temperature": 4.0, "seed": 5, "max_tokens": 150}
    _, body = server.generate(**asked)
    pieces = [event["text_output"] for event in server.stream(**asked)]

    assert "".join(pieces) == body["text_output"]
    assert not any(piece.endswith("\ufffd") for piece in pieces[:-1])
    assert any(ord(character) > 127 for character in body["text_output"])


def test_the_configuration_that_clients_read_names_limits_and_cache(server):
    client = http.InferenceServerClient(f"{LOOPBACK}:{server.http_port}")
    parameters = client.get_model_config("demo")["parameters"]

    assert parameters["max_batch_size"]["string_value"] == "16"
    assert json.loads(parameters["scheduler"]["string_value"])["num_kv_blocks"] == 16 * 256 // 32
