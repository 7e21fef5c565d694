"""A serving pod's processes without the pod: Triton is given; the front and OpenAI's API run as their manifest says."""

import contextlib
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.kube.front import EnvoyFront
from slipway.tasks.serving.pod import drain
from slipway.tasks.serving.rendered import front, front_keys
from slipway.tasks.serving.rendered.commands import PORTS, TRITON_PORTS
from tests.local.serving.triton_server import LOOPBACK
from tests.support import plain_http
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.ports import free_ports
from tests.support.service_logs import LogFiles, tell

TEMPLATES = REPOSITORY / "k8s_manifests" / "serving"
RELEASE = "demo-0123456789ab"
START_S = 100


class OpenAiServer:
    """Both processes; `with` ends them. With `behind`, only a further front, before the API of that one.

    `keys` is a file of API keys, which clients then need.
    """

    def __init__(self, triton, folder, models=("demo",), connection_age_s=600, processes=1, behind=None, keys=None):
        self.port, self.grpc_port, self.probe_port = free_ports(3)
        self.folder, self.log, self._has_keys = folder, folder / "openai.log", keys is not None
        self._ports = {
            (PORTS["http"], TRITON_PORTS["http"]): (self.port, triton.http_port),
            (PORTS["grpc"], TRITON_PORTS["grpc"]): (self.grpc_port, triton.grpc_port),
        }
        self.sockets = front.openai_sockets(str(processes * front.CPUS_PER_PROCESS))
        command = [ENVIRONMENTS / "triton/bin/python", "-m", "slipway.tasks", "openai"]
        command += [f"--socket={name}" for name in self.sockets]
        command += [f"--triton-host={LOOPBACK}", f"--triton-port={triton.http_port}", f"--release={RELEASE}"]
        command += [f"--model={model}" for model in models]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
        envoy = [
            ENVIRONMENTS / "front/bin/envoy",
            "--disable-hot-restart",
            "--concurrency",
            "2",
            "--log-level",
            "warning",
        ]
        envoy += ["--config-yaml", self._config(connection_age_s, keys is not None)]
        tell(LogFiles(self.log))
        with self.log.open("wb") as log:
            if behind is None:
                self.openai = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
                self._processes = [self.openai]
            else:
                self.openai, self._processes = behind.openai, []
                for name in self.sockets:
                    (folder / name).symlink_to(behind.folder / name)
            environment[front_keys.VARIABLE] = str(keys)
            self.front = subprocess.Popen(envoy, cwd=folder, stdout=log, stderr=log, env=environment)
            self._processes.append(self.front)

    def __enter__(self):
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self.openai.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise AssertionError(self.log.read_text())
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        for process in reversed(self._processes):
            process.terminate()
            process.wait(20)

    @property
    def url(self):
        return f"http://{LOOPBACK}:{self.port}"

    def drain(self, leave_s, requests_s=20):
        """What the preStop hook does."""
        admin = EnvoyFront(self.folder / Path(front.SOCKET).name)
        return drain.drain(admin, SystemClock(), leave_s=leave_s, requests_s=requests_s)

    def _answers(self):
        # a front that asks for keys answers for the API itself, so Triton's health is all that can be asked without one
        path = "health" if self._has_keys else "v1/models"
        with contextlib.suppress(httpx.TransportError):
            return plain_http.get(f"{self.url}/{path}", timeout=5).status_code == 200
        return False

    def _config(self, connection_age_s, keys):
        """The shipped configuration, on ports that are free."""
        document = json.loads(
            front.config(LOOPBACK, connection_age_s, TEMPLATES, sockets=self.sockets, access=front.Access(keys))
        )
        resources = document["static_resources"]
        resources["listeners"][-1]["address"]["socket_address"]["port_value"] = self.probe_port
        for (front_port, triton_port), (own_port, own_triton_port) in self._ports.items():
            listeners = [each["address"]["socket_address"] for each in resources["listeners"]]
            (listener,) = [each for each in listeners if each["port_value"] == front_port]
            listener["port_value"] = own_port
            upstreams = [
                each["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
                for each in resources["clusters"]
            ]
            (upstream,) = [
                each["socket_address"]
                for each in upstreams
                if each.get("socket_address", {}).get("port_value") == triton_port
            ]
            upstream["port_value"] = own_triton_port
        return json.dumps(document)


def _shared(triton, folder, **options):
    """A fixture of the session: the API over the server of another fixture."""

    @pytest.fixture(scope="session")
    def running(request, tmp_path_factory):
        server = request.getfixturevalue(triton)
        with OpenAiServer(server, tmp_path_factory.mktemp(folder), **options) as api:
            yield api

    return running


api = _shared("server", "openai")
long_api = _shared("long_server", "long")
five_api = _shared("five", "five")
llmapi_api = _shared("llmapi", "llm-api")


def client_of(api, key="none"):
    """OpenAI's own client."""
    return plain_http.openai_client(f"{api.url}/v1", key)


class KeptClient:
    """Asks again and again over one connection, as long as the server keeps it; every exception is a failure."""

    def __init__(self, ask):
        self.answers, self.failures = [], []
        self._ask, self._stop = ask, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.is_set():
            try:
                self.answers.append(self._ask())
            except Exception as error:  # noqa: BLE001 - to a client every error is a failed request
                self.failures.append(repr(error))
                return
            self._stop.wait(0.1)
