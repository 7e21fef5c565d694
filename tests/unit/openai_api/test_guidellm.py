"""The requests that guidellm 0.8.1 builds, and what it reads in the answers.

Bodies: guidellm/backends/openai/request_handlers.py, TextCompletionsRequestHandler, ChatCompletionsRequestHandler and
ResponsesRequestHandler, `format`; http.py drops what is None, asks GET /health first and takes the first model of
GET /v1/models. A run that wants so many tokens in each answer, as synthetic data does, sends `ignore_eos`.
"""

import json

import pytest

from tests.unit.openai_api.models import OURS, config_of
from tests.unit.openai_api.test_routes import HELLO, Triton, events, exchange, post

MODEL = config_of((*OURS, "ignore_eos", "min_p"))
USAGE = {"include_usage": True, "continuous_usage_stats": True}
STREAM = {"model": "demo", "stream": True, "stream_options": USAGE}
TEXT = {"type": "text", "text": "Hi"}
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [TEXT]},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": [TEXT, TEXT]},
]
BODIES = {
    "/v1/completions": {**STREAM, "max_tokens": 128, "ignore_eos": True, "prompt": "Be brief. Hi"},
    "/v1/chat/completions": {**STREAM, "max_completion_tokens": 128, "ignore_eos": True, "messages": TURNS},
}
RESPONSES = {
    "model": "demo",
    "stream": True,
    "max_output_tokens": 128,
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    ],
}


def text_of(choice):
    return choice.get("text") or choice.get("delta", {}).get("content") or ""


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_has_the_text_and_the_usage_that_guidellm_counts(path):
    triton = Triton(HELLO, MODEL)
    status, text = post(triton, BODIES[path], path)
    *chunks, done = events(text)
    documents = [json.loads(chunk) for chunk in chunks]
    usage = [document["usage"] for document in documents if document.get("usage")]

    assert (status, done) == (200, "[DONE]")
    assert "".join(text_of(choice) for document in documents for choice in document["choices"][:1]) == "Hello!"
    assert (usage[-1]["prompt_tokens"], usage[-1]["completion_tokens"]) == (4, 3)
    asked = triton.asked[0][1]
    assert (asked["max_tokens"], asked["ignore_eos"]) == (128, True)


@pytest.mark.parametrize("path", BODIES)
def test_a_whole_answer_has_them_as_well(path):
    body = {name: value for name, value in BODIES[path].items() if not name.startswith("stream")}
    status, text = post(Triton(HELLO, MODEL), body, path)
    choice, usage = json.loads(text)["choices"][0], json.loads(text)["usage"]

    assert (status, usage["completion_tokens"]) == (200, 3)
    assert "Hello!" in {choice.get("text"), choice.get("message", {}).get("content")}


@pytest.mark.parametrize("path", BODIES)
def test_an_engine_that_cannot_go_on_after_its_end_refuses_by_name(path):
    status, text = post(Triton(HELLO), BODIES[path], path)

    assert (status, json.loads(text)["error"]["param"]) == (400, "ignore_eos")


def test_a_response_ends_with_the_usage():
    triton = Triton(HELLO, MODEL)
    status, text = post(triton, RESPONSES, "/v1/responses")
    documents = [json.loads(line.removeprefix("data:")) for line in text.splitlines() if line.startswith("data:")]
    deltas = [each["delta"] for each in documents if each["type"] == "response.output_text.delta"]

    assert (status, "".join(deltas)) == (200, "Hello!")
    assert documents[-1]["type"] == "response.completed"
    assert documents[-1]["response"]["usage"]["output_tokens"] == 3
    roles = [message["role"] for message in json.loads(triton.asked[0][1]["messages"])]
    assert roles == ["system", "user", "assistant", "user"]


def test_what_guidellm_asks_before_it_begins():
    (health, _), (status, text) = exchange(Triton(HELLO, MODEL), ("GET", "/health", {}), ("GET", "/v1/models", {}))

    assert (health, status, json.loads(text)["data"][0]["id"]) == (200, 200, "demo")
