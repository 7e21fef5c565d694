"""Repositories of llmapi and vllm in one real Triton, with stand-ins where TensorRT-LLM and vLLM would be."""

import json

import pytest
from tokenizers import Tokenizer

from tasks.adapters.triton.generate_request import GenerateRequest
from tasks.adapters.triton.triton import TritonClient
from tasks.contracts.errors import InputError
from tests.local.serving.test_continuous_batching import QUESTIONS
from tests.local.serving.triton_server import LOOPBACK, GrpcStream, together

TEMPLATED = "<|user|>Hi?<|assistant|>"
QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
WARM = {"text_input": "Erzähl mir von 東京 😀", "temperature": 4.0, "max_tokens": 150}


@pytest.fixture
def client(both):
    with TritonClient(LOOPBACK, both.http_port, both.grpc_port) as client:
        yield client


def test_the_llm_api_answers_through_generate_stream_and_grpc(both):
    status, body = both.generate(text_input=QUESTION)
    events = list(both.stream(text_input=QUESTION))
    stream = GrpcStream(both.grpc_port, text_input=QUESTION)
    pieces = list(stream)
    stream.leave()

    assert (status, body["text_output"], body["finish_reason"]) == (200, ANSWER, "stop")
    for told in (events, pieces):
        assert "".join(event["text_output"] for event in told) == ANSWER
        assert told[-1]["finish_reason"] == "stop"
        assert len(told) > 1


def test_the_llm_api_streams_whole_characters(both):
    """It obeys no seed, so each answer is another one."""
    answers = [[event["text_output"] for event in both.stream(**WARM)] for _ in range(2)]

    assert answers[0] != answers[1]
    assert not any(piece.endswith("\ufffd") for pieces in answers for piece in pieces[:-1])
    assert any(ord(character) > 127 for pieces in answers for character in "".join(pieces))


def test_sixteen_at_once_get_their_own_right_answer_of_the_llm_api(both):
    pairs = [json.loads(line) for line in QUESTIONS.read_text().splitlines()[:16]]

    answers = together(16, lambda number: both.generate(text_input=pairs[number]["prompt"])[1])

    assert [answer["text_output"] for answer in answers] == [pair["answer"] for pair in pairs]


def test_the_llm_api_refuses_in_words(both):
    status, body = both.generate(text_input=QUESTION * 20)

    assert (status, "this model takes at most 64" in body["error"]) == (400, True)


def test_one_client_asks_the_llm_api(client):
    answer = client.generate("demo", GenerateRequest(QUESTION, 40), timeout_s=30)

    assert (answer.text, answer.finish_reason) == (ANSWER, "stop")


def test_one_client_asks_vllm_in_its_own_words(client):
    request = GenerateRequest("Hi?", 40, temperature=0.5, seed=7)
    answer = client.generate("other", request, timeout_s=30)
    chunks = list(client.stream("other", request, timeout_s=30))

    assert answer.text == f"{TEMPLATED!r} max_tokens=40 seed=7 temperature=0.5 "
    assert "".join(chunk.text for chunk in chunks) == answer.text
    assert [chunk.finish_reason for chunk in chunks] == ["", "", "", "length"]
    assert answer.finish_reason == "length"


def test_vllm_hears_which_adapter_shall_answer(client):
    answer = client.generate("other", GenerateRequest("Hi?", 40, lora="polite"), timeout_s=30)

    assert answer.text == f"{TEMPLATED!r} lora_name=polite max_tokens=40 temperature=0.0 "


def test_vllm_hears_a_questions_parameters(client):
    sampling = {"top_p": 0.5, "stop": ["x", "y"], "bad_words": ["z"], "min_tokens": 2}
    answer = client.generate("other", GenerateRequest("Hi?", 4, sampling=sampling), timeout_s=30)

    told = "bad_words=['z'] max_tokens=4 min_tokens=2 stop=['x', 'y'] temperature=0.0 top_p=0.5 "
    assert answer.text == f"{TEMPLATED!r} {told}"


def test_vllm_reads_a_conversation_by_the_chat_template(client):
    history = ({"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Yes."})
    answer = client.generate("other", GenerateRequest("Who?", 40, history=history), timeout_s=30)

    assert answer.text.startswith(repr(f"{TEMPLATED}Yes.</s><|user|>Who?<|assistant|>"))


def test_vllm_reads_the_token_that_begins_a_text_once(both, engine):
    tokenizer = Tokenizer.from_file(str(engine / "tokenizer.json"))
    _, prompt = both.generate(model="other_prompt", text_input="Hi?", max_tokens=4)

    read = tokenizer.encode(prompt["prompt"], add_special_tokens=True).ids
    assert read == tokenizer.encode(f"<s>{TEMPLATED}", add_special_tokens=False).ids
    assert (prompt["prompt_tokens"], prompt["max_tokens"]) == (len(read), 4)


def test_an_answer_without_a_limit_has_the_checkpoints_own_and_not_that_of_vllm(both, engine):
    _, prompt = both.generate(model="other_prompt", text_input="Hi?")

    own = json.loads((engine / "generation_config.json").read_text())["max_new_tokens"]
    assert (prompt["max_tokens"], own != 16) == (own, True)


def test_a_prompt_that_vllm_reads_as_other_tokens_is_no_answer(client):
    """vLLM's transformers may load a tokenizer otherwise than tokenizer.json says: here it begins a text twice."""
    with pytest.raises(InputError, match="as other tokens than its chat template means") as refused:
        client.generate("odd", GenerateRequest("Hi?", 4), timeout_s=30)

    assert (refused.value.found, refused.value.expected[:2]) == ("7 tokens", "6,")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (GenerateRequest("Hi? " * 80, 4), "this model takes at most 64"),
        (GenerateRequest("Hi?", 100_000), "prompt and max_tokens together"),
        (GenerateRequest("", 4), "the prompt is empty"),
        (GenerateRequest("Hi?", 4, lora="rude"), "LoRA rude is not supported"),
    ],
)
def test_what_vllm_has_no_room_for_is_refused_in_the_words_of_every_kind(client, request_, message):
    with pytest.raises(InputError, match=message):
        client.generate("other", request_, timeout_s=30)


def test_an_adapter_of_the_llm_api_answers_and_an_unknown_one_is_refused_in_words(client):
    answer = client.generate("demo", GenerateRequest(QUESTION, 40, lora="terse"), timeout_s=30)

    assert answer.text == "The capital of"
    with pytest.raises(InputError, match="lora_name is 'rude'; this release has polite, terse"):
        client.generate("demo", GenerateRequest(QUESTION, 40, lora="rude"), timeout_s=30)


def test_a_model_that_is_not_there_is_an_error_of_the_one_who_asks(client):
    with pytest.raises(InputError) as caught:
        client.generate("nowhere", GenerateRequest("Hi?", 4), timeout_s=5)

    assert "nowhere" in caught.value.what
