"""The `slipway` command's own client of the Kubernetes API, against the embedded cluster."""

from contextlib import closing

import pytest
from kubernetes import client, config

from slipway.cli.kube.api import KubeApi
from slipway.cli.kube.kubeconfig import access
from tests.local.stack.pods import NAMESPACE, python_pod
from tests.support.waiting import PATIENCE_S, until

# what the stack starts outlives the process that started it
pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")

ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 8000))
while True:
    connection, _ = server.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
"""
POD = python_pod(
    "echo",
    ECHO,
    "$(POD_IP)",
    env=[{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    readinessProbe={"tcpSocket": {"port": 8000}, "periodSeconds": 1},
)


@pytest.fixture(scope="module")
def api(shared_stack):
    """The command's client, once the pod `echo` is ready."""
    core = client.CoreV1Api(config.new_client_from_config(str(shared_stack.kubeconfig)))
    core.create_namespaced_pod(NAMESPACE, POD)

    def ready():
        conditions = core.read_namespaced_pod("echo", NAMESPACE).status.conditions or []
        return any(each.type == "Ready" and each.status == "True" for each in conditions)

    until(ready)
    return KubeApi(access([shared_stack.kubeconfig], None), NAMESPACE)


def test_the_slipway_command_talks_with_a_port_of_a_pod(api):
    with closing(api.forward("echo", 8000)) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(b"hello")

        assert connection.recv(3) + connection.recv(100) == b"hello"


def test_the_slipway_command_reads_objects_and_their_absence(api):
    assert api.get("pods/echo")["metadata"]["name"] == "echo"
    assert api.get("services/absent") is None
    assert api.items("apis/discovery.k8s.io/v1:endpointslices", labelSelector="kubernetes.io/service-name=absent") == []
