"""A model whose process never returns from a request, in a real Triton: ready for good, and seen by the liveness probe."""

import http.client
import json
import signal

import pytest

from slipway.tasks.serving.pod.live import problems
from tests.local.serving.triton_server import LOOPBACK
from tests.support import plain_http
from tests.support.processes import processes_naming, sent

CONFIG = """
name: "demo" backend: "python" max_batch_size: 0
model_transaction_policy { decoupled: true }
input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
MODEL = """
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0]
            while text == b"hang":
                time.sleep(1)
            output = pb_utils.Tensor("text_output", np.array([b"answer"], dtype=object))
            request.get_response_sender().send(pb_utils.InferenceResponse([output]), flags=1)
"""
HEALTH = "/v2/health/ready"
STALLED_S, PERIOD_S = 30, 15


@pytest.fixture
def server(start_server, tmp_path):
    (tmp_path / "repository" / "demo" / "1").mkdir(parents=True)
    (tmp_path / "repository" / "demo" / "config.pbtxt").write_text(CONFIG)
    (tmp_path / "repository" / "demo" / "1" / "model.py").write_text(MODEL)
    running = start_server(tmp_path / "repository", metrics=True)
    yield running
    # the server would wait for the request that hangs, and its model's process goes on without it now and then
    for pid in processes_naming(str(tmp_path / "repository")):
        sent(pid, signal.SIGKILL)


def ask_and_leave(server, text):
    connection = http.client.HTTPConnection(LOOPBACK, server.http_port)
    connection.request("POST", "/v2/models/demo/generate_stream", json.dumps({"text_input": text}))
    connection.close()


def test_it_stays_ready_and_is_found_dead_once_requests_have_waited(server, tmp_path):
    def probe(now):
        return problems(
            LOOPBACK,
            server.http_port,
            server.metrics_port,
            [HEALTH],
            stalled_s=STALLED_S,
            state=tmp_path / "live.json",
            now=now,
        )

    assert server.generate(text_input="hello")[0] == 200
    assert probe(0) == []
    for _ in range(2):  # one hangs and the other waits, whichever comes first
        ask_and_leave(server, "hang")
    metrics = f"http://{LOOPBACK}:{server.metrics_port}/metrics"
    while 'nv_inference_pending_request_count{model="demo",version="1"} 1' not in plain_http.get(metrics).text:
        pass

    assert [probe(now) != [] for now in range(PERIOD_S, PERIOD_S + STALLED_S + 1, PERIOD_S)] == [False, False, True]
    assert server._exchange("GET", HEALTH)[0] == 200
