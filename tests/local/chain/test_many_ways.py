"""Every way in which the live model may be asked, through its Service."""

import json
import urllib.request

import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.spec_fields import PLAIN_ANSWER_TOKENS
from tests.local.chain.whole_chain import MODEL
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def service(chain, promoted):
    return chain.address()


@pytest.fixture
def question(chain):
    return chain.spec.gate.smoke[0].model_copy(update={"max_tokens": PLAIN_ANSWER_TOKENS})


def post(service, path, **document):
    url = f"http://{service.host}:{service.ports['http']}/v2/models/{path}"
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=PATIENCE_S)


def test_generate_gives_the_whole_answer(service, question):
    asked = {"text_input": question.prompt, "max_tokens": question.max_tokens}
    with post(service, f"{MODEL}/generate", **asked) as answer:
        assert question.accepts(json.load(answer)["text_output"])


def test_generate_stream_gives_it_in_pieces(service, question):
    asked = {"text_input": question.prompt, "max_tokens": question.max_tokens, "stream": True}
    with post(service, f"{MODEL}/generate_stream", **asked) as answer:
        events = [json.loads(line.removeprefix(b"data: ")) for line in answer if line.startswith(b"data: ")]

    assert len(events) > 1
    assert question.accepts("".join(event["text_output"] for event in events))


def test_a_grpc_stream_gives_it_in_pieces(service, question):
    with TritonClient(service.host, service.ports["http"], service.ports["grpc"]) as client:
        chunks = list(client.stream(MODEL, GenerateRequest(question.prompt, question.max_tokens), 30))

    assert len(chunks) > 1
    assert question.accepts("".join(chunk.text for chunk in chunks))


def test_an_http_inference_gives_the_whole_answer(service, question):
    import numpy as np
    from tritonclient import http

    client = http.InferenceServerClient(f"{service.host}:{service.ports['http']}")
    inputs = []
    for name, kind, value in (
        ("text_input", "BYTES", np.array([question.prompt.encode()], dtype=object)),
        ("max_tokens", "INT32", np.array([question.max_tokens], dtype=np.int32)),
    ):
        inputs.append(http.InferInput(name, list(value.shape), kind))
        inputs[-1].set_data_from_numpy(value)
    answer = client.infer(f"{MODEL}_whole_answer", inputs).as_numpy("text_output")
    client.close()

    assert question.accepts(answer.reshape(-1)[0].decode())
