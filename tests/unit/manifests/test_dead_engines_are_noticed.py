"""A vLLM engine that died: its model unloads itself, and the pod's probes see that."""

import http.server
import threading

import pytest

from slipway.tasks.serving.pod import ready
from slipway.tasks.serving.rendered import commands, groups, manifests
from tests.fakes.documents.gpu_site import gpu_site
from tests.fakes.releases import SPEC, release
from tests.support.paths import REPOSITORY

TEMPLATES = REPOSITORY / "k8s_manifests" / "serving"
SITE = gpu_site()


def made(name="demo", kind="vllm", **serving):
    engine = {**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-A10G"}
    return release(name=name, quantization={"format": "none"}, engine=engine, serving=serving)


def container(documents):
    return documents[0]["spec"]["template"]["spec"]["containers"][0]


def alone(kind):
    return container(manifests.deployment(made(kind=kind), "s3://bucket/release.json", SITE, TEMPLATES))


def grouped(kind):
    members = [made(name, kind, group="chat", gpus=[gpu]) for gpu, name in enumerate(("llama", "mistral"))]
    uris = [groups.Member(each, f"s3://bucket/{each.spec.name}/release.json") for each in members]
    return container(groups.deployment(uris, SITE, TEMPLATES))


@pytest.mark.parametrize("server", [alone, grouped])
def test_a_model_may_unload_itself_and_no_client_may_load_another(server):
    serving = server("vllm")

    assert {"--model-control-mode=explicit", "--load-model=*"} <= set(serving["command"])
    for flag in ("--http-restricted-api", "--grpc-restricted-protocol"):
        closed = "shared-memory,logging,trace,model-repository"
        assert f"{flag}={closed}:{commands.CONTROL_HEADER}=$(POD_UID)" in serving["command"]
    assert {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}} in serving["env"]


@pytest.mark.parametrize("server", [alone, grouped])
def test_servers_whose_models_stay_loaded_keep_triton_from_unloading_them(server):
    serving = server("llmapi")

    assert not [word for word in serving["command"] if "control-mode" in word]
    assert serving["livenessProbe"]["exec"]["command"][-1] == "/v2/health/ready"


def test_the_liveness_of_a_vllm_server_is_its_models():
    assert alone("vllm")["readinessProbe"]["httpGet"]["path"] == "/v2/models/demo/ready"
    assert alone("vllm")["livenessProbe"]["exec"]["command"][-1] == "/v2/models/demo/ready"


def test_every_model_of_a_group_is_probed():
    command = ["python", "-m", "slipway.tasks.serving.pod.ready", "--port=9000", "llama", "mistral"]

    assert grouped("vllm")["readinessProbe"]["exec"]["command"] == command
    assert grouped("vllm")["livenessProbe"]["exec"]["command"][-2:] == [
        "/v2/models/llama/ready",
        "/v2/models/mistral/ready",
    ]


class _Triton(http.server.BaseHTTPRequestHandler):
    """A server whose model mistral was unloaded, and whose model phi is ready when it is asked for the third time."""

    def do_GET(self):
        self.server.asked.append(self.path)
        loading = self.path == "/v2/models/phi/ready" and self.server.asked.count(self.path) < 3
        self.send_response(400 if loading or self.path == "/v2/models/mistral/ready" else 200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def triton():
    """Its port on loopback."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Triton) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_a_probe_succeeds_only_if_all_models_are_ready(triton, capsys):
    port = f"--port={triton}"

    assert ready.main([port, "llama"], "127.0.0.1") == 0
    assert ready.main([port, "llama", "mistral"], "127.0.0.1") == 1
    assert capsys.readouterr().err == "not ready: mistral: HTTP status 400\n"


def test_the_startup_probe_waits_for_a_model_that_loads(triton, capsys):
    assert ready.main([f"--port={triton}", "--within-s=60", "phi", "llama"], "127.0.0.1") == 0
    assert capsys.readouterr().err == ""


def test_the_startup_probe_says_what_is_not_ready_in_time(triton, capsys):
    assert ready.main([f"--port={triton}", "--within-s=0.6", "mistral"], "127.0.0.1") == 1
    assert capsys.readouterr().err == "not ready: mistral: HTTP status 400\n"


def test_a_probe_of_a_server_that_does_not_listen_fails():
    with http.server.HTTPServer(("127.0.0.1", 0), _Triton) as server:
        port = server.server_address[1]

    assert ready.main([f"--port={port}", "llama"], "127.0.0.1") == 1
