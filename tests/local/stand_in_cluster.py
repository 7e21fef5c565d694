"""The embedded cluster with images of our own: a server that speaks Triton's health paths, in several tempers.

The manifests are the real ones, and so are the front and every move. What the container runs answers in Triton's place,
so that a test takes seconds and may fail on purpose. The real Triton is tested in tests/local/serving.
"""

import contextlib
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.contracts.site.site import Images
from tests.fakes.kube.cluster import ConnectedWorkspace
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.workspace import site as site_of
from tests.local.rollout.in_threads import InThreads
from tests.local.rollout.kept_clients import KeptClients
from tests.support.cluster_process import PYTHON, ClusterProcess
from tests.support.paths import ENVIRONMENTS, REPOSITORY
from tests.support.service_logs import LogFiles, tell
from tests.support.waiting import PATIENCE_S, until

STAND_IN = Path(__file__).with_name("rollout") / "stand_in.py"
CONTEXT = "slipway-rollout"
GATEWAY_PORT = 8080

SERVER = f"""#!/bin/sh
exec {PYTHON} {STAND_IN} "$@"
"""
TASKS = f"""#!/bin/sh
# python -m slipway.tasks: drain and openai are the real ones, fetch-repository works without an object store
if [ "$3" = drain ] || [ "$3" = openai ]; then
  export PYTHONPATH={REPOSITORY}
  exec {ENVIRONMENTS}/tasks/bin/python "$@"
fi
case "$TEMPER" in
  damaged) echo "publish 3f2a: config.pbtxt is not what the manifest says" | tee "$SLIPWAY_TERMINATION_LOG"; exit 65;;
  storeless) echo "the object store does not answer" | tee "$SLIPWAY_TERMINATION_LOG"; exit 75;;
esac
"""
PAUSE_S = 0.1
"""Between two requests of one client: without it most of what these tests compute is answers."""
LARGE_S = 30
"""How long the image test/triton:large takes to be pulled."""
TEMPERS = ("good", "steady", "lagging", "tiring", "nonsense", "crashing", "unready", "damaged", "storeless")


class Server(ClusterProcess):
    """The embedded cluster in a process of its own."""

    def __init__(self, folder):
        image = folder / "image"
        image.mkdir()
        for name, text in {"tritonserver": SERVER, "python": TASKS}.items():
            (image / name).write_text(text)
            (image / name).chmod(0o755)
        row = {"path_prefix": [str(image)]}
        images = {f"test/triton:{temper}": {**row, "env": {"TEMPER": temper}} for temper in TEMPERS}
        images["test/triton:large"] = {**row, "pull_s": LARGE_S}
        shipped = yaml.safe_load((REPOSITORY / "local" / "images.yaml").read_text())["images"]
        images[Images.model_fields["front"].default] = shipped[Images.model_fields["front"].default]
        tell(LogFiles(folder / "state"))
        places = ("--place", f"ENVS={ENVIRONMENTS}", "--place", f"REPO={REPOSITORY}")
        super().__init__(folder, images, CONTEXT, *places, "--gateway", ENVIRONMENTS / "front" / "bin" / "envoy")


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    found = Server(tmp_path_factory.mktemp("rollout"))
    yield found
    found.stop()


@contextlib.contextmanager
def site_in(server, name):
    """A site with a serving namespace of this name, within the block."""
    api = client.CoreV1Api(config.new_client_from_config(str(server.kubeconfig), context=CONTEXT))
    api.create_namespace({"metadata": {"name": name}})
    account = {"metadata": {"name": "slipway-server"}, "automountServiceAccountToken": False}
    api.create_namespaced_service_account(name, account)
    api.create_namespaced_config_map(name, {"metadata": {"name": "slipway-site"}, "data": {"site.yaml": "{}"}})
    shape = {"cpu": "100m", "memory": "512Mi", "scratch": "16Mi"}
    yield site_of(
        kubernetes={"context": CONTEXT, "serving_namespace": name},
        images={"tasks": "test/triton:good", "serving": {"openvino": "test/triton:good"}},
        shapes={"small": shape, "transfer": shape, "compute": shape, "serving": shape},
        serving={"bind_address": "$(POD_IP)"},
    )
    api.delete_namespace(name)


@pytest.fixture
def site(server, request):
    """A site whose serving namespace is the test's own."""
    with site_in(server, f"test-{abs(hash(request.node.nodeid)) % 10**8}") as made:
        yield made


@pytest.fixture
def cluster(server, site):
    return Cluster.connect(site, kubeconfig=server.kubeconfig)


@pytest.fixture
def workspace(site, cluster, tmp_path):
    """Everything real but the object store."""
    return ConnectedWorkspace(
        site, MemoryObjectStore(), SystemClock(), tmp_path, REPOSITORY, lambda: None, connection=cluster
    )


@pytest.fixture
def gateway(server, site):
    """A Gateway in the test's namespace; its address."""
    api = client.CustomObjectsApi(config.new_client_from_config(str(server.kubeconfig), context=CONTEXT))
    place = {"group": "gateway.networking.k8s.io", "version": "v1", "plural": "gateways"}
    namespace = site.kubernetes.serving_namespace
    listener = {"name": "http", "port": GATEWAY_PORT, "protocol": "HTTP"}
    body = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "models"},
        "spec": {"gatewayClassName": "embedded", "listeners": [listener]},
    }
    api.create_namespaced_custom_object(namespace=namespace, body=body, **place)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        found = api.get_namespaced_custom_object(namespace=namespace, name="models", **place)
        if "status" in found:
            return found["status"]["addresses"][0]["value"]
        time.sleep(0.05)
    raise AssertionError(found)


class Client(InThreads):
    """Asks again and again over new connections, and remembers who answered and what failed."""

    def __init__(self, address, at_once=4):
        self.url = f"http://{address.host}:{address.ports['http']}/v2"
        self.answers, self.failures, self.at_once = [], [], at_once
        super().__init__(*[self._ask] * at_once)

    def after(self, count):
        """Wait for `count` more answers."""
        wanted = len(self.answers) + count
        until(lambda: len(self.answers) >= wanted, said=lambda: f"{len(self.answers)} answers, {self.failures[:3]}")

    def _ask(self):
        while not self._stop.is_set():
            try:
                with urllib.request.urlopen(self.url, timeout=PATIENCE_S) as answer:
                    self.answers.append(answer.read().decode())
            except (urllib.error.URLError, OSError) as error:
                self.failures.append(repr(error))
            time.sleep(PAUSE_S)


@pytest.fixture
def asking():
    return Client


@pytest.fixture
def keeping():
    return KeptClients
