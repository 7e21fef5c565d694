"""What TensorRT-LLM is asked with, by either of its engine kinds: every sampling parameter by name, type, shape and value."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer
from tritonclient import grpc
from tritonclient.utils import InferenceServerException

from slipway.tasks.contracts.wire.grammar.ebnf import Dialect
from slipway.tasks.contracts.wire.json_schema import grammar_of
from tests.local.serving.openai_server import client_of
from tests.local.serving.triton_server import LOOPBACK

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
ASKED = [{"role": "user", "content": QUESTION}]
GREEDY = {
    "runtime_top_k": ("int32", [1]),
    "runtime_top_p": ("float32", [1.0]),
    "temperature": ("float32", [1.0]),
    "seed": ("uint64", [0]),
    "min_tokens": ("int32", [1]),
    "presence_penalty": ("float32", [0.0]),
    "frequency_penalty": ("float32", [0.0]),
    "repetition_penalty": ("float32", [1.0]),
    "return_log_probs": ("bool", [False]),
    "request_output_len": ("int32", [5]),
    "end_id": ("int32", [1]),
    "pad_id": ("int32", [2]),
    "bad_words_list": ("int32", [0, -1]),
    "stop_words_list": ("int32", []),
    "streaming": ("bool", [True]),
}
"""Inputs of the tensorrt_llm model for a question with max_tokens 5; every other one depends on the prompt."""
WORDS = {"bad_words_list", "stop_words_list"}


def asked_by(file):
    """What an engine was asked with last; its file holds what all of these tests asked."""
    return lambda: json.loads(file.read_text().splitlines()[-1])


@pytest.fixture
def engine_kind(five, five_api):
    """A client of trt-engine, and what its engine was asked with last."""
    with client_of(five_api) as client:
        yield five, client, asked_by(five.repository / "demo_tensorrt_llm" / "asked.jsonl")


@pytest.fixture
def llm_api(llmapi, llmapi_api):
    with client_of(llmapi_api) as client:
        yield client, asked_by(llmapi.repository / "demo" / "asked.jsonl")


def ask(client, **parameters):
    known = {"max_tokens": 5, "logprobs": False, **parameters}
    body = {
        name: known.pop(name) for name in ("top_k", "min_tokens", "repetition_penalty", "bad_words") if name in known
    }
    return client.chat.completions.create(model="demo", messages=ASKED, extra_body=body, **known).choices[0]


@pytest.mark.parametrize(
    ("parameters", "changed"),
    [
        ({}, {}),
        ({"temperature": 0.5, "seed": 2**63 - 1}, {"temperature": ("float32", [0.5]), "seed": ("uint64", [2**63 - 1])}),
        (
            {"temperature": 2, "top_p": 0.25, "seed": 3},
            {"temperature": ("float32", [2.0]), "runtime_top_p": ("float32", [0.25])},
        ),
        ({"temperature": 1, "top_k": 7, "seed": 3}, {"runtime_top_k": ("int32", [7])}),
        ({"temperature": 1, "seed": 3}, {"runtime_top_k": ("int32", [0])}),
        ({"min_tokens": 3}, {"min_tokens": ("int32", [3])}),
        ({"presence_penalty": 0.5}, {"presence_penalty": ("float32", [0.5])}),
        ({"frequency_penalty": -0.5}, {"frequency_penalty": ("float32", [-0.5])}),
        ({"repetition_penalty": 1.25}, {"repetition_penalty": ("float32", [1.25])}),
        ({"logprobs": True}, {"return_log_probs": ("bool", [True])}),
        ({"max_tokens": 9}, {"request_output_len": ("int32", [9])}),
    ],
)
def test_each_parameter_reaches_the_engine_as_its_backend_reads_it(engine_kind, parameters, changed):
    _, client, asked = engine_kind
    ask(client, **parameters)
    found = asked()
    warm = {"seed": ("uint64", [3]), "runtime_top_k": ("int32", [0])} if "temperature" in parameters else {}

    expected = {**GREEDY, **warm, **changed}
    assert {name: (found[name]["type"], found[name]["values"]) for name in expected} == expected
    # `reshape` of config.pbtxt leaves the batch alone of a scalar's shape
    assert {tuple(found[name]["shape"]) for name in expected.keys() - WORDS} == {(1,)}
    assert {tuple(found[name]["shape"][:2]) for name in WORDS} == {(1, 2)}
    assert found["input_ids"]["shape"] == [1, *found["input_lengths"]["values"]]
    assert found.keys() == expected.keys() | {"input_ids", "input_lengths"}


def test_stop_and_bad_words_reach_the_engine_as_ids_and_where_each_ends(engine_kind, engine):
    _, client, asked = engine_kind
    ask(client, stop=[" France", "."], bad_words=["Paris"])
    found = asked()
    tokenizer = Tokenizer.from_file(str(engine / "tokenizer.json"))

    def rows(words):
        ids = [tokenizer.encode(word, add_special_tokens=False).ids for word in words]
        ends = np.cumsum([len(each) for each in ids]).tolist()
        flat = [token for each in ids for token in each]
        return [*flat, *ends, *[-1] * (len(flat) - len(ends))]

    assert found["stop_words_list"]["values"] == rows([" France", "."])
    # as vLLM, a bad word is forbidden at the beginning of a text and within one
    assert found["bad_words_list"]["values"] == rows(["Paris", " Paris"])


def test_a_json_schema_reaches_the_engine_as_a_guide_and_is_obeyed(engine_kind):
    _, client, asked = engine_kind
    schema = {"enum": ["Rome", "Oslo"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = ask(client, max_tokens=30, response_format=wanted).message.content
    found = asked()

    assert json.loads(answer) in schema["enum"]
    assert found["guided_decoding_guide_type"] == {"type": "bytes", "shape": [1, 1], "values": ["ebnf_grammar"]}
    assert found["guided_decoding_guide"]["values"] == [grammar_of(json.dumps(schema), Dialect.ALL_OR_NONE)]


def test_what_the_engine_obeys_changes_the_answer(engine_kind):
    _, client, _ = engine_kind
    warm = {"temperature": 5, "seed": 3, "max_tokens": 30}

    assert ask(client, **warm).message.content != ANSWER
    assert ask(client, **warm, top_k=1).message.content == ANSWER
    assert ask(client, **warm, top_p=1e-6).message.content == ANSWER
    assert len(ask(client, max_tokens=30, min_tokens=25).message.content) > len(ANSWER)
    assert ask(client, max_tokens=30, repetition_penalty=20.0).message.content != ANSWER
    assert ask(client, max_tokens=30, frequency_penalty=2.0, presence_penalty=2.0).message.content is not None


def test_the_engines_log_probabilities_are_those_of_the_answers_tokens(engine_kind):
    _, client, _ = engine_kind
    choice = ask(client, logprobs=True, max_tokens=30)

    assert "".join(each.token for each in choice.logprobs.content) == choice.message.content == ANSWER
    assert all(-1 < each.logprob <= 0 for each in choice.logprobs.content)


def tensor(name, values, kind):
    data = np.array(values, dtype={"INT32": np.int32, "INT64": np.int64, "FP32": np.float32, "UINT64": np.uint64}[kind])
    found = grpc.InferInput(name, list(data.shape), kind)
    found.set_data_from_numpy(data)
    return found


REQUEST = {
    "input_ids": ([[5, 6]], "INT32"),
    "input_lengths": ([[2]], "INT32"),
    "request_output_len": ([[2]], "INT32"),
    "end_id": ([[1]], "INT32"),
    "seed": ([[3]], "UINT64"),
    "temperature": ([[1.0]], "FP32"),
    "stop_words_list": ([[[7], [1]]], "INT32"),
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"top_k": ([[3]], "INT32")}, "unexpected inference input 'top_k'"),
        ({"runtime_top_k": ([[3]], "INT64")}, "data-type"),
        ({"runtime_top_k": ([[3.0]], "FP32")}, "data-type"),
        ({"temperature": ([[1.0, 2.0]], "FP32")}, "unexpected shape"),
        ({"min_tokens": ([3], "INT32")}, "unexpected shape"),
        ({"input_lengths": ([[3]], "INT32")}, "input_lengths"),
        ({"runtime_top_p": ([[1.5]], "FP32")}, "runtime_top_p is 1.5"),
        ({"temperature": ([[0.0]], "FP32")}, "temperature is 0.0"),
        ({"min_tokens": ([[0]], "INT32")}, "min_tokens is 0"),
        ({"stop_words_list": ([[[7, 8], [2, 2]]], "INT32")}, "non-increasing offsets"),
        ({"bad_words_list": ([[[7], [3]]], "INT32")}, "out-of-bound offsets"),
        ({"bad_words_list": ([[[7, 8], [-1, 2]]], "INT32")}, "additional -1s"),
    ],
)
def test_the_stand_in_refuses_what_triton_and_the_backend_refuse(engine_kind, changed, message):
    server, _, _ = engine_kind
    inputs = [tensor(name, *value) for name, value in {**REQUEST, **changed}.items()]
    with grpc.InferenceServerClient(f"{LOOPBACK}:{server.grpc_port}") as client:
        arrived = []
        client.start_stream(lambda result, error: arrived.append(error))
        try:
            client.async_stream_infer("demo_tensorrt_llm", inputs)
        except InferenceServerException as error:
            arrived.append(error)
        client.stop_stream()

    assert any(error is not None and message in str(error) for error in arrived), arrived


LLM_GREEDY = {"end_id": 1, "max_tokens": 5, "detokenize": False, "n": 1, "ignore_eos": False, "top_k": 1}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, LLM_GREEDY),
        ({"min_tokens": 3}, {**LLM_GREEDY, "min_tokens": 3}),
        ({"logprobs": True}, {**LLM_GREEDY, "logprobs": 1}),
        ({"logprobs": True, "top_logprobs": 4}, {**LLM_GREEDY, "logprobs": 4}),
        ({"temperature": 0.5}, {"temperature": 0.5, "top_p": 1.0}),
        ({"temperature": 0.5, "top_p": 0.25}, {"temperature": 0.5, "top_p": 0.25}),
        ({"temperature": 0.5, "top_k": 7}, {"temperature": 0.5, "top_p": 1.0, "top_k": 7}),
    ],
)
def test_each_parameter_reaches_the_llm_api_by_its_name(llm_api, parameters, expected):
    client, asked = llm_api
    ask(client, **parameters)
    found = asked()
    warm = "temperature" in parameters
    always = {name: LLM_GREEDY[name] for name in ("end_id", "max_tokens", "detokenize", "n", "ignore_eos")}

    # one that nobody gave: its own sampler would take the same one each time
    assert isinstance(found.pop("seed", None), int) is warm
    assert found.pop("inputs")
    assert found == {**always, **{name: pytest.approx(value) for name, value in expected.items()}}


def test_what_the_llm_api_obeys_changes_the_answer(llm_api):
    client, _ = llm_api
    warm = {"temperature": 5, "max_tokens": 30}

    assert ask(client, **warm).message.content != ANSWER
    assert ask(client, **warm, top_k=1).message.content == ANSWER
    assert ask(client, **warm, top_p=1e-6).message.content == ANSWER
    assert len(ask(client, max_tokens=30, min_tokens=25).message.content) > len(ANSWER)
    choice = ask(client, logprobs=True, max_tokens=30)
    assert "".join(each.token for each in choice.logprobs.content) == ANSWER
