"""A real server in a process of its own, with a real kubernetes client and kubectl against it."""

import http.client
import itertools
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kubernetes import client, config

TESTS = Path(__file__).resolve().parent
PACKAGE = __package__.rpartition(".")[0]
ROOT = TESTS.parents[PACKAGE.count(".") + 1]
"""The folder that the package is imported from."""
NAME = "test-node"
IMAGE = "test/python:1"
DEVICE = "example.com/device"


def wait_for(file):
    """Code that waits until a file exists."""
    return f"import os, time\nwhile not os.path.exists({str(file)!r}): time.sleep(0.05)\n"


def until(check, timeout_s=180.0):
    """The first true answer of `check`, which is asked less often the longer it takes: each costs the server and us some ms."""
    began = time.monotonic()
    while not (answer := check()):
        waited_s = time.monotonic() - began
        assert waited_s < timeout_s, f"waited {timeout_s} s in vain"
        time.sleep(min(0.5, max(0.03, 0.1 * waited_s)))
    return answer


class LocalCluster:
    def __init__(self, folder):
        self.state, self.kubeconfig, self.process = folder / "state", folder / "kubeconfig", None
        self.more_options = ("--device", f"{DEVICE}=1", "--label", "disk=fast")
        self.images = Path(shutil.copy(TESTS / "images.yaml", folder))

    def spawn(self):
        options = {
            "--state": self.state,
            "--port": 0,
            "--kubeconfig": self.kubeconfig,
            "--name": NAME,
            "--images": self.images,
            "--hold-s": 5,  # a stalled machine starts no pod within the 0.6 s of a laptop
            "--eviction-grace-s": 60,  # and may stall between SIGTERM and SIGKILL
            "--place": f"PYTHON={Path(sys.executable).parent}",
        }
        command = [sys.executable, "-m", PACKAGE, *(str(part) for pair in options.items() for part in pair)]
        command += self.more_options
        bare = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
        return subprocess.Popen(
            command, cwd=ROOT, env=bare, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def start(self):
        self.process = self.spawn()
        line = self.process.stdout.readline()
        assert line.startswith("{"), line + self.process.stdout.read()
        self.port = json.loads(line)["port"]
        self.api_client = config.new_client_from_config(str(self.kubeconfig), context=NAME)
        self.core, self.apps = client.CoreV1Api(self.api_client), client.AppsV1Api(self.api_client)

    def ask(self, path, method="GET", body=None, content_type="application/json", token=None):
        """Status code and JSON body of a plain request."""
        token = (self.state / "token").read_text().strip() if token is None else token
        headers = {"Content-Type": content_type, **({"Authorization": f"Bearer {token}"} if token else {})}
        trusted = ssl.create_default_context(cafile=str(self.state / "server.crt"))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=trusted)
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, json.loads(text) if text.startswith("{") else text

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def spawn_stop(self):
        return subprocess.Popen([sys.executable, "-m", PACKAGE, "stop", "--state", str(self.state)], cwd=ROOT)

    def run_stop(self):
        assert self.spawn_stop().wait(180) == 0

    def stop(self):
        self.run_stop()
        if self.process.poll() is None:
            self.process.wait(60)
        self.process.stdout.close()

    def kubectl(self, *arguments, text=None, check=True, timeout=240):
        binary = shutil.which("kubectl")
        if binary is None:
            pytest.skip("there is no kubectl on this machine")
        bare = {"PATH": os.environ["PATH"], "HOME": str(self.state), "KUBECONFIG": str(self.kubeconfig)}
        done = subprocess.run(
            [binary, *arguments], input=text, env=bare, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert not check or done.returncode == 0, done.stderr + done.stdout
        return done


class Space:
    """One namespace of the cluster."""

    def __init__(self, cluster, name):
        self.cluster, self.name, self.core, self.apps = cluster, name, cluster.core, cluster.apps
        self.core.create_namespace({"metadata": {"name": name}})

    def kubectl(self, *arguments, **options):
        return self.cluster.kubectl("-n", self.name, *arguments, **options)

    def pod_body(self, name, code, **more):
        container = {"name": "base", "image": IMAGE, "command": ["python", "-c", code], **more.pop("container", {})}
        meta = {"name": name, **more.pop("metadata", {})}
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container], **more}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def run(self, name, code, **more):
        return self.core.create_namespaced_pod(self.name, self.pod_body(name, code, **more))

    def pod(self, name):
        return self.core.read_namespaced_pod(name, self.name)

    def finished(self, name):
        def look():
            pod = self.pod(name)
            return pod if pod.status.phase in ("Succeeded", "Failed") else None

        return until(look)

    def started(self, name):
        """Wait until the pod is no longer Pending. After --hold-s the server says that it is made, though no container runs yet."""
        until(lambda: self.pod(name).status.phase != "Pending")

    def logs(self, name, **options):
        self.started(name)
        # The client would answer str(b"..."): https://github.com/kubernetes-client/python/issues/2596
        answer = self.core.read_namespaced_pod_log(name, self.name, _preload_content=False, **options)
        return answer.read().decode()

    def gone(self, name):
        def look():
            try:
                self.pod(name)
            except client.ApiException as error:
                return error.status == 404
            return False

        return until(look)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    server = LocalCluster(tmp_path_factory.mktemp("cluster"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_cluster(tmp_path):
    server = LocalCluster(tmp_path)
    server.start()
    yield server
    server.stop()


_numbers = itertools.count()


@pytest.fixture
def space(cluster):
    namespace = Space(cluster, f"test-{next(_numbers)}")
    yield namespace
    cluster.core.delete_namespace(namespace.name)


@pytest.fixture
def space_in():
    return Space


@pytest.fixture(name="until")
def until_fixture():
    return until
