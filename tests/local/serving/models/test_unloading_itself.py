"""A model that unloads itself, as Triton's vLLM backend has it when its engine died, in a real Triton."""

import pytest

from slipway.tasks.serving.pod import ready
from slipway.tasks.serving.rendered import commands
from tests.local.serving.triton_server import LOOPBACK
from tests.support.waiting import until

CONFIG = """
name: "NAME" backend: "python" max_batch_size: 0
input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]

    def execute(self, requests):
        pb_utils.unload_model(self.name)
        output = pb_utils.Tensor("text_output", np.array([b"gone"], dtype=object))
        return [pb_utils.InferenceResponse([output]) for _ in requests]
"""
SERVER = commands.Server(LOOPBACK, 30, "region", unloads_models=True, control_key="nobody-knows")
CONTROL = [word for word in commands.single(SERVER) if any(part in word for part in ("control", "load-model"))]


@pytest.fixture(scope="module")
def server(start_server, tmp_path_factory):
    """A server of two models, with the flags that a vllm server has."""
    repository = tmp_path_factory.mktemp("unloading")
    for name in ("dying", "living"):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(CONFIG.replace("NAME", name))
        (repository / name / "1" / "model.py").write_text(MODEL)
    return start_server(repository, arguments=CONTROL)


def state(server, path):
    return server._exchange("GET", path)[0]


@pytest.mark.parametrize("action", ["load", "unload"])
def test_a_client_may_not_load_or_unload_a_model(server, action):
    status, body = server._exchange("POST", f"/v2/repository/models/living/{action}", {})

    assert status == 403, body
    assert state(server, "/v2/models/living/ready") == 200


def test_a_model_that_unloaded_itself_is_not_ready_although_its_server_is(server):
    assert ready.not_ready(LOOPBACK, server.http_port, ["dying", "living"]) == []
    assert server.generate(model="dying", text_input="?")[1]["text_output"] == "gone"
    until(lambda: state(server, "/v2/models/dying/ready") != 200)
    until(lambda: state(server, "/v2/health/ready") == 200)  # not before the model is unloaded whole

    assert ready.not_ready(LOOPBACK, server.http_port, ["living"]) == []
    assert ready.not_ready(LOOPBACK, server.http_port, ["dying", "living"]) == ["dying: HTTP status 400"]
