"""What clients send that is too much, or only half: limits of the front and of OpenAI's API (docs/openai.md)."""

import gzip
import json
import socket

import pytest

from slipway.tasks.serving.openai_api.application import BODY_BYTES
from tests.local.serving.triton_server import LOOPBACK
from tests.support import plain_http

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
ASKED = {"model": "demo", "messages": [{"role": "user", "content": QUESTION}]}


def ask(api, **options):
    return plain_http.post(f"{api.url}/v1/chat/completions", json=ASKED, timeout=60, **options)


def test_a_token_is_accepted_ignored_and_never_logged(api):
    answer = ask(api, headers={"Authorization": "Bearer my-secret-token"})

    assert answer.json()["choices"][0]["message"]["content"] == ANSWER
    assert "my-secret-token" not in api.log.read_text()


def test_a_long_token_passes_as_it_does_to_triton(api):
    assert ask(api, headers={"Authorization": f"Bearer {'x' * 40_000}"}).status_code == 200


def test_headers_beyond_the_fronts_limit_are_refused(api):
    assert ask(api, headers={"Authorization": f"Bearer {'x' * 70_000}"}).status_code == 431


def test_more_than_a_hundred_headers_are_refused(api):
    assert ask(api, headers={f"x-{number}": "x" for number in range(120)}).status_code == 431


def test_a_body_beyond_the_limit_is_refused_as_one_that_no_context_holds(api):
    refused = plain_http.post(f"{api.url}/v1/chat/completions", content=b" " * (BODY_BYTES + 1), timeout=60)
    error = refused.json()["error"]

    assert (refused.status_code, error["code"]) == (400, "context_length_exceeded")
    assert set(error) == {"message", "type", "param", "code"}


def test_a_body_beyond_the_limit_is_refused_in_anthropics_form(api):
    refused = plain_http.post(f"{api.url}/v1/messages", content=b" " * (BODY_BYTES + 1), timeout=60)

    assert (refused.status_code, refused.json()["error"]["type"]) == (413, "request_too_large")


def test_a_long_prompt_within_the_limit_is_refused_by_the_model(api):
    long = {**ASKED, "messages": [{"role": "user", "content": "word " * 200_000}]}
    refused = plain_http.post(f"{api.url}/v1/chat/completions", json=long, timeout=60)
    error = refused.json()["error"]

    assert (refused.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
    assert len(error["message"]) < 1000


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [("gzip", gzip.compress(json.dumps(ASKED).encode()), 200), ("gzip", b"no gzip", 400), ("br", b"x", 415)],
)
def test_the_front_hands_compressed_requests_on_as_they_are(api, encoding, body, status):
    headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}

    assert (
        plain_http.post(f"{api.url}/v1/chat/completions", content=body, headers=headers, timeout=60).status_code
        == status
    )


@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_load_tools_are_told_that_the_models_take_requests(api, path):
    assert plain_http.get(f"{api.url}{path}", timeout=60).status_code == 200
    assert plain_http.post(f"{api.url}{path}", timeout=60).status_code == 404


def test_a_client_that_leaves_within_its_request_disturbs_nobody(api):
    for _ in range(3):
        with socket.create_connection((LOOPBACK, api.port)) as half:
            half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")

    assert ask(api).json()["choices"][0]["message"]["content"] == ANSWER
    assert "Traceback" not in api.log.read_text()
