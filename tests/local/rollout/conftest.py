"""The embedded cluster with images of our own: a server that speaks Triton's health paths, in several tempers.

The manifests are the real ones and so is every move. What the container runs answers in Triton's place, so that a test
takes seconds and may fail on purpose. The real Triton is tested in tests/local/serving.
"""

import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from tasks.adapters.clock import SystemClock
from tasks.adapters.kube import Cluster
from tests.fakes.cluster import ConnectedWorkspace
from tests.fakes.object_store import MemoryObjectStore
from tests.fakes.workspace import site as site_of

REPOSITORY = Path(__file__).resolve().parents[3]
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
PYTHON = ENVIRONMENTS / "local" / "bin" / "python"
CONTEXT = "slipway-rollout"

SERVER = '''#!{python}
"""Answers as Triton would: a model that is ready, and on / the name of the pod."""
import os, signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

flags = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:] if "=" in word)
if os.environ.get("TEMPER") == "crashing":
    sys.exit("error: creating server: Internal - failed to load all models")

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        ready = os.environ.get("TEMPER") != "unready" or not self.path.endswith("/ready")
        body = os.environ["POD_NAME"].encode()
        self.send_response(200 if ready else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

class Server(ThreadingHTTPServer):
    request_queue_size = 128

server = Server((flags["http-address"], int(flags["http-port"])), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
print("waiting for requests", flush=True)
server.serve_forever()
'''
FETCH = """#!/bin/sh
# python -m tasks fetch-repository, without an object store
case "$TEMPER" in
  damaged) echo "publish 3f2a: config.pbtxt is not what the manifest says" | tee "$SLIPWAY_TERMINATION_LOG"; exit 65;;
  storeless) echo "the object store does not answer" | tee "$SLIPWAY_TERMINATION_LOG"; exit 75;;
esac
"""
TEMPERS = ("good", "crashing", "unready", "damaged", "storeless")


class Server:
    """The embedded cluster in a process of its own."""

    def __init__(self, folder):
        self.kubeconfig, self.state = folder / "kubeconfig", folder / "state"
        image = folder / "image"
        image.mkdir()
        for name, text in {"tritonserver": SERVER.replace("{python}", str(PYTHON)), "python": FETCH}.items():
            (image / name).write_text(text)
            (image / name).chmod(0o755)
        row = {"path_prefix": [str(image)]}
        images = {f"test/triton:{temper}": {**row, "env": {"TEMPER": temper}} for temper in TEMPERS}
        table = folder / "images.yaml"
        table.write_text(yaml.safe_dump({"images": images}))
        options = ["--state", self.state, "--port", 0, "--kubeconfig", self.kubeconfig, "--context", CONTEXT]
        options += ["--images", table, "--envs", ENVIRONMENTS, "--repo", REPOSITORY]
        self.process = subprocess.Popen(
            [str(PYTHON), "-m", "local.cluster", *map(str, options)],
            cwd=REPOSITORY,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        line = self.process.stdout.readline()
        assert line.startswith("{"), line + self.process.stdout.read()
        assert json.loads(line)["port"] > 0

    def stop(self):
        command = [str(PYTHON), "-m", "local.cluster", "stop", "--state", str(self.state)]
        subprocess.run(command, cwd=REPOSITORY, check=True, timeout=60)
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    found = Server(tmp_path_factory.mktemp("rollout"))
    yield found
    found.stop()


@pytest.fixture
def site(server, request):
    """A site whose serving namespace is the test's own."""
    name = f"test-{abs(hash(request.node.nodeid)) % 10**8}"
    api = client.CoreV1Api(config.new_client_from_config(str(server.kubeconfig), context=CONTEXT))
    api.create_namespace({"metadata": {"name": name}})
    account = {"metadata": {"name": "slipway-server"}, "automountServiceAccountToken": False}
    api.create_namespaced_service_account(name, account)
    api.create_namespaced_config_map(name, {"metadata": {"name": "slipway-site"}, "data": {"site.yaml": "{}"}})
    shape = {"cpu": "100m", "memory": "256Mi", "scratch": "16Mi"}
    yield site_of(
        kubernetes={"context": CONTEXT, "serving_namespace": name},
        images={"tasks": "test/triton:good", "serving": {"openvino": "test/triton:good"}},
        shapes={"small": shape, "transfer": shape, "compute": shape, "serving": shape},
        serving={"bind_address": "$(POD_IP)"},
    )
    api.delete_namespace(name)


@pytest.fixture
def cluster(server, site):
    return Cluster.connect(site, kubeconfig=server.kubeconfig)


@pytest.fixture
def workspace(site, cluster, tmp_path):
    """Everything real but the object store."""
    return ConnectedWorkspace(
        site, MemoryObjectStore(), SystemClock(), tmp_path, REPOSITORY, lambda: None, connection=cluster
    )


class Client:
    """Asks again and again over new connections, and remembers who answered and what failed."""

    def __init__(self, address, at_once=4):
        self.url = f"http://{address.host}:{address.ports['http']}/"
        self.answers, self.failures, self.at_once, self._stop = [], [], at_once, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(at_once)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def after(self, count, timeout_s=20):
        """Wait for `count` more answers."""
        wanted, deadline = len(self.answers) + count, time.monotonic() + timeout_s
        while len(self.answers) < wanted:
            assert time.monotonic() < deadline, f"{len(self.answers)} answers, {self.failures[:3]}"
            time.sleep(0.01)

    def _ask(self):
        while not self._stop.is_set():
            try:
                with urllib.request.urlopen(self.url, timeout=10) as answer:
                    self.answers.append(answer.read().decode())
            except (urllib.error.URLError, OSError) as error:
                self.failures.append(repr(error))
            time.sleep(0.01)


@pytest.fixture
def asking():
    return Client
