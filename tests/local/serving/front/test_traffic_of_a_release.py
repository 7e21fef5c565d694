"""What a canary reads of the real Triton about requests that clients sent."""

import http.client

import pytest

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.measured.traffic import grown, read_page
from tests.support.waiting import PATIENCE_S, until

LONG = "What is the capital of France? " * 200


def served(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.metrics_port, timeout=PATIENCE_S)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    return {"pod": read_page(page, "demo")}


def counted(server, requests):
    """What is counted once there are so many requests: Triton counts one a moment after its answer has arrived."""
    until(lambda: served(server)["pod"].requests >= requests)
    return served(server)


def test_answers_and_refusals_of_the_real_server_are_counted(start_server, make_repository):
    server = start_server(make_repository(), metrics=True)
    with TritonClient("127.0.0.1", server.http_port, server.grpc_port) as client:
        for _ in range(5):
            client.generate("demo", GenerateRequest("What is the capital of France?", 8), 30)
        answered = grown({}, counted(server, 5))
        with pytest.raises(InputError):
            client.generate("demo", GenerateRequest(LONG, 8), 30)
        every = grown({}, counted(server, 6))

    server.end()

    assert (answered.succeeded, answered.failed) == (5, 0)
    assert answered.request_s >= answered.queue_s > 0
    assert (every.succeeded, every.failed) == (6, 0)
