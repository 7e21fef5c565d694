"""Port-forward as in the real API, used by the Kubernetes client and by a bare WebSocket."""

import ssl
import struct

import pytest
import websocket
from kubernetes import client
from kubernetes.stream import portforward

ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 8000))
while True:
    connection, _ = server.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
        if data.endswith(b"bye"):
            connection.close()
            break
"""
V4 = "v4.channel.k8s.io"


@pytest.fixture
def echo(space, until):
    container = {
        "command": ["python", "-c", ECHO, "$(POD_IP)"],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "readinessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 1},
    }
    space.run("echo", "", container=container)

    def ready():
        return any(each.type == "Ready" and each.status == "True" for each in space.pod("echo").status.conditions or [])

    until(ready)
    return "echo"


def forwarded(space, pod, port):
    # the client patches itself for the time of a call, so each needs one of its own
    api = client.CoreV1Api(client.ApiClient(space.cluster.api_client.configuration))
    return portforward(api.connect_get_namespaced_pod_portforward, pod, space.name, ports=str(port))


@pytest.fixture
def opened(space):
    """Open a bare WebSocket on a subresource of a pod."""
    token = (space.cluster.state / "token").read_text().strip()
    trusted = ssl.create_default_context(cafile=str(space.cluster.state / "server.crt"))
    made = []

    def open_(path, *, protocols=(V4,)):
        made.append(websocket.WebSocket(sslopt={"context": trusted}))
        made[-1].settimeout(60)
        made[-1].connect(
            f"wss://127.0.0.1:{space.cluster.port}/api/v1/namespaces/{space.name}/pods/{path}",
            header=[f"Authorization: Bearer {token}"],
            subprotocols=list(protocols),
        )
        return made[-1]

    yield open_
    for each in made:
        each.shutdown()


def test_the_kubernetes_client_talks_with_a_port_of_a_pod(space, echo):
    connection = forwarded(space, echo, 8000).socket(8000)
    connection.settimeout(60)
    connection.sendall(b"hello")

    assert connection.recv(100) == b"hello"
    connection.close()


def test_each_channel_begins_with_its_port(opened, echo):
    channels = opened(f"{echo}/portforward?ports=8000,8001")

    first = [channels.recv() for _ in range(4)]

    assert channels.getsubprotocol() == V4
    assert first == [struct.pack("<BH", channel, port) for channel, port in enumerate((8000, 8000, 8001, 8001))]


def test_more_than_a_message_holds_comes_back_whole_and_in_order(opened, echo):
    channels = opened(f"{echo}/portforward?ports=8000")
    sent = bytes(range(256)) * 4096
    for start in range(0, len(sent), 1 << 18):
        channels.send_binary(b"\x00" + sent[start : start + (1 << 18)])

    back = b""
    while len(back) < len(sent):
        message = channels.recv()
        back += message[1:] if message[0] == 0 and message != struct.pack("<BH", 0, 8000) else b""

    assert back == sent


def test_the_websocket_ends_when_the_pod_closes(opened, echo):
    channels = opened(f"{echo}/portforward?ports=8000")
    channels.send_binary(b"\x00bye")

    assert [channels.recv() for _ in range(4)][2:] == [b"\x00bye", ""]


def test_a_port_where_nothing_listens_is_an_error_on_the_error_channel(space, echo):
    forward = forwarded(space, echo, 8009)
    connection = forward.socket(8009)
    connection.settimeout(60)

    assert connection.recv(100) == b""
    assert "error forwarding port 8009 to pod" in forward.error(8009)
    assert "connection refused" in forward.error(8009)
    connection.close()


@pytest.mark.parametrize(
    ("query", "reason"),
    [("", 'query parameter "port" is required'), ("?ports=http", 'unable to parse "http"'), ("?ports=0", "as a port")],
)
def test_a_request_without_a_port_is_refused(opened, echo, query, reason):
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        opened(f"{echo}/portforward{query}")

    assert refused.value.status_code == 400
    assert reason in refused.value.resp_body.decode().replace('\\"', '"')


def test_a_protocol_that_the_server_does_not_speak_is_refused(opened, echo):
    with pytest.raises(websocket.WebSocketBadStatusException, match="no protocol in common") as refused:
        opened(f"{echo}/portforward?ports=8000", protocols=["SPDY/3.1+portforward.k8s.io"])

    assert refused.value.status_code == 400


def test_a_plain_request_is_told_to_upgrade(space, echo):
    status, body = space.cluster.ask(f"/api/v1/namespaces/{space.name}/pods/{echo}/portforward?ports=8000")

    assert (status, body["message"]) == (400, "Upgrade request required")


def test_a_pod_that_has_ended_has_no_ports(space, opened):
    space.run("ended", "")
    space.finished("ended")

    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        opened("ended/portforward?ports=8000")

    assert refused.value.status_code == 500
    assert refused.value.resp_body.decode() == f'pod not found ("ended_{space.name}")\n'


def test_kubectl_is_told_why_it_cannot_forward(space, echo):
    done = space.kubectl("port-forward", f"pod/{echo}", "0:8000", check=False)

    assert done.returncode != 0
    assert "does not speak SPDY" in done.stderr
