"""The repository of a TensorRT-LLM engine in real Triton, with tokens from OpenVINO where TensorRT-LLM would make them."""

import json
import time
from collections import Counter

import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from tests.local.serving.models.test_continuous_batching import QUESTIONS
from tests.local.serving.served_engine import without_end
from tests.local.serving.triton_server import LOOPBACK, GrpcStream, RunningAnswer, together
from tests.support.waiting import PATIENCE_S

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
WARM = {"text_input": "Erzähl mir von 東京 😀", "temperature": 4.0, "seed": 5, "max_tokens": 150}
LONG = {"text_input": "Tell me everything.", "temperature": 8.0, "seed": 3, "max_tokens": 15_000}
STAYS = {**LONG, "seed": 4, "max_tokens": 14_000}
"""Begins before LONG and has fewer tokens, so it ends long before that one does."""


def test_generate_gives_the_whole_answer(five):
    status, body = five.generate(text_input=QUESTION)

    assert (status, body["text_output"], body["finish_reason"]) == (200, ANSWER, "stop")


def test_the_ensemble_gives_the_whole_answer_and_cannot_say_why_it_ended(five):
    status, body = five.generate(model="demo_ensemble", text_input=QUESTION)

    assert (status, body["text_output"], "finish_reason" in body) == (200, ANSWER, False)


def test_the_pieces_of_a_stream_are_the_whole_answer(five):
    events = list(five.stream(text_input=QUESTION))

    assert "".join(event["text_output"] for event in events) == ANSWER
    assert len(events) > 3
    assert [event["finish_reason"] for event in events] == [""] * (len(events) - 1) + ["stop"]


def test_a_grpc_stream_gives_the_same_pieces(five):
    stream = GrpcStream(five.grpc_port, text_input=QUESTION)
    events = list(stream)
    stream.leave()

    assert events == [
        {name: event[name] for name in ("text_output", "finish_reason")} for event in five.stream(text_input=QUESTION)
    ]


@pytest.mark.parametrize(("model", "reason"), [("demo", "stop"), ("demo_ensemble", "")])
def test_the_pipelines_own_client_asks_both_in_the_same_words(five, model, reason):
    request = GenerateRequest(QUESTION, 40, seed=7)
    with TritonClient(LOOPBACK, five.http_port, five.grpc_port) as client:
        whole = client.generate(model, request, timeout_s=PATIENCE_S)
        chunks = list(client.stream(model, request, timeout_s=PATIENCE_S))

    assert (whole.text, whole.finish_reason) == (ANSWER, reason)
    assert ("".join(chunk.text for chunk in chunks), chunks[-1].finish_reason) == (ANSWER, reason)
    assert (len(chunks) == 1) == (model == "demo_ensemble")


@pytest.mark.parametrize(("adapter", "text"), [("polite", "The capital"), ("terse", "The capital of"), (None, ANSWER)])
def test_an_adapter_answers_the_first_time_and_again(five, adapter, text):
    """The first request meets an engine that does not have the adapter's weights."""
    with TritonClient(LOOPBACK, five.http_port, five.grpc_port) as client:
        request = GenerateRequest(QUESTION, 40, lora=adapter)
        answers = [client.generate("demo", request, timeout_s=PATIENCE_S).text for _ in range(2)]
        answers.append("".join(chunk.text for chunk in client.stream("demo", request, timeout_s=PATIENCE_S)))

    assert answers == [text] * 3


def test_adapters_and_the_model_answer_at_once(five):
    names = ["polite", "terse", None] * 4

    def text(number):
        chosen = {"lora_name": names[number]} if names[number] else {}
        return five.generate(text_input=QUESTION, **chosen)[1]["text_output"]

    assert together(12, text) == ["The capital", "The capital of", ANSWER] * 4


def test_an_unknown_adapter_is_refused_in_words(five):
    status, body = five.generate(text_input=QUESTION, lora_name="rude")

    assert (status, "lora_name is 'rude'; this release has polite, terse." in body["error"]) == (400, True)


@pytest.mark.parametrize("model", ["demo", "demo_ensemble"])
def test_max_tokens_ends_an_answer(five, model):
    _, body = five.generate(model=model, text_input=QUESTION, max_tokens=3)

    assert (body["text_output"], body.get("finish_reason", "length")) == ("The capital of", "length")


def test_a_stop_word_ends_an_answer(five):
    _, cut = five.generate(text_input=QUESTION, stop_words=["nothing", "France"])

    assert (cut["text_output"], cut["finish_reason"], cut["stop_word"]) == ("The capital of ", "stop", "France")


def test_an_empty_stop_word_is_refused(five):
    status, body = five.generate(text_input=QUESTION, stop_words=[""])

    assert (status, "stop_words has an empty text" in body["error"]) == (400, True)


def test_a_stream_ends_before_its_stop_word(five):
    events = list(five.stream(text_input=QUESTION, stop_words=["France"]))

    assert "".join(event["text_output"] for event in events) == "The capital of "
    assert events[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize("model", ["demo", "demo_ensemble"])
def test_a_seed_repeats_a_warm_answer_and_another_seed_does_not(five, model):
    asked = {"text_input": QUESTION, "temperature": 3.0, "max_tokens": 24}
    texts = [five.generate(model=model, seed=seed, **asked)[1]["text_output"] for seed in (7, 7, 8)]

    assert texts[0] == texts[1] != texts[2]
    assert len({five.generate(model=model, **asked)[1]["text_output"] for _ in range(4)}) > 1


def test_a_stream_of_random_bytes_is_whole_characters_and_the_text_of_the_whole_answer(five):
    wholes = [five.generate(model=model, **WARM)[1]["text_output"] for model in ("demo", "demo_ensemble")]
    pieces = [event["text_output"] for event in five.stream(**WARM)]

    assert wholes == ["".join(pieces)] * 2
    assert not any(piece.endswith("\ufffd") for piece in pieces[:-1])
    assert any(ord(character) > 127 for character in wholes[0])


def test_sixteen_at_once_all_get_their_own_right_answer_from_both(five):
    pairs = [json.loads(line) for line in QUESTIONS.read_text().splitlines()[:16]]
    models = ["demo", "demo_ensemble"]

    answers = together(16, lambda i: five.generate(model=models[i % 2], text_input=pairs[i]["prompt"])[1])

    assert [answer["text_output"] for answer in answers] == [pair["answer"] for pair in pairs]


@pytest.mark.parametrize("model", ["demo", "demo_ensemble"])
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text_input": QUESTION * 20}, "this model takes at most 64"),
        ({"text_input": QUESTION, "max_tokens": 0}, "max_tokens is 0; expected at least 1"),
        ({"text_input": QUESTION, "max_tokens": 250}, "this model holds 256"),
        ({"text_input": QUESTION, "temperature": -1.0}, "temperature is -1.0"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_in_words(five, model, inputs, message):
    status, body = five.generate(model=model, **inputs)

    assert status == 400
    assert message in body["error"]


@pytest.fixture(scope="module")
def two_slots(start_server, make_topology):
    """A server whose answers never end by themselves, far beyond what the model was trained on."""
    blocks = {"num_kv_blocks": 512 * 2, "max_num_seqs": 2}
    repository = make_topology(max_batch_size=2, max_sequence_tokens=16_000, scheduler=blocks)
    without_end(repository / "demo" / "1" / "engine")
    server = start_server(repository)
    yield server
    server.end()


def test_streams_run_side_by_side(two_slots):
    with RunningAnswer(two_slots, **STAYS) as first, RunningAnswer(two_slots, **LONG) as second:
        assert not first.has_ended
        assert not second.has_ended


def test_a_client_that_leaves_a_stream_frees_its_slot(two_slots):
    with RunningAnswer(two_slots, **STAYS) as other:
        stream = two_slots.stream(**LONG)
        next(iter(stream))
        stream.disconnect()

        assert other.outlasts(lambda: asked_briefly(two_slots))


def test_a_client_that_leaves_while_it_waits_for_the_whole_answer_frees_its_slot(two_slots):
    with RunningAnswer(two_slots, **STAYS) as other:
        begun = begun_by(two_slots)
        waiting = GrpcStream(two_slots.grpc_port, **LONG, stream=False)
        while begun_by(two_slots) == begun:
            time.sleep(0.02)
        waiting.leave(cancel=True)

        assert other.outlasts(lambda: asked_briefly(two_slots))


def asked_briefly(server):
    assert server.generate(text_input=QUESTION, max_tokens=9)[1]["text_output"] == ANSWER


def begun_by(server):
    """How many requests the stand-in has begun to answer."""
    (file,) = server.repository.glob("*/asked.jsonl")
    return len(file.read_text().splitlines())


def test_a_thousand_short_answers_at_eight_at_once_break_nothing(five):
    """Triton's server dies of a question about a client that was answered already; Python, of arrays freed without its lock."""

    def ask_often(_):
        return [five.generate(text_input=QUESTION, max_tokens=1)[0] for _ in range(125)]

    assert Counter(status for each in together(8, ask_often) for status in each) == {200: 1000}
    assert five.process.poll() is None
