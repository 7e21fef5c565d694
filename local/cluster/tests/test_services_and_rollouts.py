"""Services lead to ready pods, connections outlive a roll-out, Deployments follow their spec."""

import http.client
import socket
import threading
import time

import pytest
from kubernetes import client

from .server import wait_for

SERVER = """
import http.server, os, signal, sys, threading, time
ending = threading.Event()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/slow":
            self.send_response(200); self.send_header("Connection", "close"); self.end_headers()
            self.wfile.write(b"begun, "); self.wfile.flush(); ending.wait(); self.wfile.write(b"ended")
            return
        ready = self.path != "/ready" or not os.path.exists(os.environ["HOME"] + "/unready")
        text = os.environ["ANSWER"].encode()
        self.send_response(200 if ready else 503); self.send_header("Content-Length", str(len(text))); self.end_headers()
        self.wfile.write(text)
    def log_message(self, *arguments): pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = idle = False
    timeout = 0
    def handle_timeout(self): self.idle = True
server = Server((sys.argv[1], int(sys.argv[2])), Handler)
def drain(*arguments):
    ending.set(); threading.Thread(target=lambda: (time.sleep(1), server.shutdown())).start()
signal.signal(signal.SIGTERM, drain)
server.serve_forever()
while not server.idle: server.handle_request()  # connections from before the pod left its Service
server.server_close()
"""


def template(answer, **more):
    container = {
        "name": "web",
        "image": "test/python:1",
        "command": ["python", "-c", SERVER, "$(POD_IP)", "8000"],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "ANSWER", "value": answer},
        ],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 60,
            "failureThreshold": 1,
        },
        **more,
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 60}
    return {"metadata": {"labels": {"app": "web", "answer": answer}}, "spec": spec}


def deployment(name, answer, replicas=1, **strategy):
    selector = {"matchLabels": {"app": "web", "answer": answer}}
    spec = {"replicas": replicas, "selector": selector, "template": template(answer), **strategy}
    return {"metadata": {"name": name}, "spec": spec}


def service(selector, name="web"):
    return {"metadata": {"name": name}, "spec": {"selector": selector, "ports": [{"port": 80, "targetPort": "http"}]}}


def get(address, path="/", port=80):
    connection = http.client.HTTPConnection(address, port, timeout=60)
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def answers(address, timeout_s=0.5):
    try:
        socket.create_connection((address, 80), timeout_s).close()
    except OSError:
        return False
    return True


def slices(space, name="web"):
    listed = client.DiscoveryV1Api(space.cluster.api_client).list_namespaced_endpoint_slice(
        space.name, label_selector=f"kubernetes.io/service-name={name}"
    )
    return listed.items


def conditions(space):
    """ready, serving, terminating of each endpoint."""
    endpoints = [endpoint.conditions for one in slices(space) for endpoint in one.endpoints or []]
    return sorted((one.ready, one.serving, one.terminating) for one in endpoints)


def ready(space, name, replicas=1):
    return lambda: space.apps.read_namespaced_deployment(name, space.name).status.ready_replicas == replicas


def test_a_service_leads_to_its_pods_in_turn(space, until):
    made = space.core.create_namespaced_service(space.name, service({"app": "web"}))
    address = made.spec.cluster_ip
    refused = not answers(address)
    space.apps.create_namespaced_deployment(space.name, deployment("a", "one"))
    space.apps.create_namespaced_deployment(space.name, deployment("b", "two"))
    until(ready(space, "a"))
    until(ready(space, "b"))
    until(lambda: answers(address))

    seen = [get(address) for _ in range(4)]

    assert refused
    assert sorted(seen) == ["one", "one", "two", "two"]
    assert [len(one.endpoints) for one in slices(space)] == [2]


def test_a_changed_selector_moves_new_connections_and_spares_old_ones(space, until):
    for name, answer in (("a", "one"), ("b", "two")):
        space.apps.create_namespaced_deployment(space.name, deployment(name, answer))
    address = space.core.create_namespaced_service(space.name, service({"answer": "one"})).spec.cluster_ip
    until(ready(space, "a"))
    until(ready(space, "b"))
    until(lambda: answers(address))
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/slow")
    old = connection.getresponse()
    begun = old.read(7)

    space.core.patch_namespaced_service("web", space.name, {"spec": {"selector": {"answer": "two"}}})
    moved = [get(address) for _ in range(3)]
    space.apps.delete_namespaced_deployment("a", space.name)

    assert moved == ["two", "two", "two"]
    assert begun + old.read() == b"begun, ended"
    connection.close()


def test_a_service_whose_pods_are_gone_refuses(space, until):
    space.apps.create_namespaced_deployment(space.name, deployment("a", "one"))
    address = space.core.create_namespaced_service(space.name, service({"app": "web"})).spec.cluster_ip
    until(lambda: answers(address))

    space.apps.patch_namespaced_deployment_scale("a", space.name, {"spec": {"replicas": 0}})

    until(lambda: not answers(address))


@pytest.fixture
def lingers(tmp_path):
    """What holds a pod that is told to end, until the test is over."""
    yield {"preStop": {"exec": {"command": ["python", "-c", wait_for(tmp_path / "go")]}}}
    (tmp_path / "go").touch()


def test_the_last_pod_of_a_service_answers_while_it_is_being_ended(space, until, lingers, tmp_path):
    body = deployment("a", "one")
    body["spec"]["template"] = template("one", lifecycle=lingers)
    space.apps.create_namespaced_deployment(space.name, body)
    address = space.core.create_namespaced_service(space.name, service({"app": "web"})).spec.cluster_ip
    until(lambda: conditions(space) == [(True, True, False)] and answers(address))

    space.apps.patch_namespaced_deployment_scale("a", space.name, {"spec": {"replicas": 0}})
    until(lambda: conditions(space) == [(False, True, True)])
    answer = get(address)
    listed = space.core.read_namespaced_endpoints("web", space.name).subsets

    assert (answer, listed) == ("one", [])
    (tmp_path / "go").touch()
    until(lambda: not answers(address))


def test_a_pod_that_is_being_ended_gets_nothing_while_another_is_ready(space, until, lingers):
    for name, answer in (("a", "one"), ("b", "two")):
        body = deployment(name, answer)
        body["spec"]["template"] = template(answer, lifecycle=lingers)
        space.apps.create_namespaced_deployment(space.name, body)
    address = space.core.create_namespaced_service(space.name, service({"app": "web"})).spec.cluster_ip
    until(lambda: conditions(space) == [(True, True, False)] * 2 and answers(address))

    space.apps.patch_namespaced_deployment_scale("a", space.name, {"spec": {"replicas": 0}})
    until(lambda: conditions(space) == [(False, True, True), (True, True, False)])

    assert {get(address) for _ in range(4)} == {"two"}


def test_a_pod_that_is_being_ended_and_says_unready_is_no_longer_serving(space, until, lingers):
    body = deployment("a", "one")
    body["spec"]["template"] = template("one", lifecycle=lingers)
    space.apps.create_namespaced_deployment(space.name, body)
    address = space.core.create_namespaced_service(space.name, service({"app": "web"})).spec.cluster_ip
    until(lambda: conditions(space) == [(True, True, False)] and answers(address))
    uid = space.core.list_namespaced_pod(space.name).items[0].metadata.uid
    (space.cluster.state / "pods" / uid / "home" / "unready").touch()

    space.apps.patch_namespaced_deployment_scale("a", space.name, {"spec": {"replicas": 0}})

    until(lambda: conditions(space) == [(False, False, True)])
    until(lambda: not answers(address))


def test_a_dead_endpoint_is_skipped(space, until):
    for name, answer in (("a", "one"), ("b", "two")):
        space.apps.create_namespaced_deployment(space.name, deployment(name, answer))
    address = space.core.create_namespaced_service(space.name, service({"app": "web"})).spec.cluster_ip
    until(ready(space, "a"))
    until(ready(space, "b"))
    pods = space.core.list_namespaced_pod(space.name, label_selector="answer=one").items
    [only] = slices(space)
    only.endpoints.append(client.V1Endpoint(addresses=["127.0.0.99"], conditions={"ready": True}))
    client.DiscoveryV1Api(space.cluster.api_client).replace_namespaced_endpoint_slice(
        only.metadata.name, space.name, only
    )

    seen = {get(address) for _ in range(6)}

    assert len(pods) == 1
    assert seen == {"one", "two"}


def test_a_roll_out_never_leaves_the_service_without_an_answer(space, until):
    strategy = {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
    body = deployment("web", "one", replicas=2, **strategy)
    body["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    space.apps.create_namespaced_deployment(space.name, body)
    address = space.core.create_namespaced_service(space.name, service({"app": "web"})).spec.cluster_ip
    until(ready(space, "web", 2))
    until(lambda: answers(address))
    seen, failed, over = [], [], threading.Event()

    def ask():
        while not over.is_set():
            try:
                seen.append(get(address))
            except (OSError, http.client.HTTPException) as error:
                failed.append(error)
            time.sleep(0.01)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    space.apps.patch_namespaced_deployment("web", space.name, {"spec": {"template": template("two")}})
    said = space.kubectl("rollout", "status", "deployment/web", "--timeout=180s").stdout
    until(lambda: seen and seen[-1] == "two")
    over.set()
    asking.join()

    assert "successfully rolled out" in said
    assert (set(seen), failed) == ({"one", "two"}, [])
    assert "2" in space.kubectl("rollout", "history", "deployment/web").stdout


def test_recreate_ends_the_old_pods_first(space, until):
    body = deployment("web", "one", strategy={"type": "Recreate"})
    body["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    space.apps.create_namespaced_deployment(space.name, body)
    until(ready(space, "web"))

    space.apps.patch_namespaced_deployment("web", space.name, {"spec": {"template": template("two")}})

    def at_the_first_new_pod():
        """The answers of the pods in one list that have not ended, once it contains a new pod."""
        pods = space.core.list_namespaced_pod(space.name).items
        living = [pod.metadata.labels["answer"] for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
        return living if "two" in living else None

    assert until(at_the_first_new_pod) == ["two"]


def test_a_deployment_without_progress_says_so(space, until):
    body = deployment("web", "one", progressDeadlineSeconds=1)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "nobody/knows:it"
    space.apps.create_namespaced_deployment(space.name, body)

    def reason():
        listed = space.apps.read_namespaced_deployment("web", space.name).status.conditions or []
        return [one.reason for one in listed if one.type == "Progressing"] == ["ProgressDeadlineExceeded"]

    assert until(reason)


def test_a_pod_of_a_deployment_that_dies_is_replaced(space, until):
    space.apps.create_namespaced_deployment(space.name, deployment("a", "one"))
    until(ready(space, "a"))
    first = space.core.list_namespaced_pod(space.name).items[0].metadata.name

    space.core.delete_namespaced_pod(first, space.name, grace_period_seconds=0)

    until(lambda: first not in [pod.metadata.name for pod in space.core.list_namespaced_pod(space.name).items])
    until(ready(space, "a"))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"type": "NodePort", "ports": [{"port": 80}]}, "node ports"),
        ({"ports": [{"port": 53, "protocol": "UDP"}]}, "TCP only"),
        ({"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}, "clusterIP"),
        ({"ports": [{"port": 70000}]}, "70000"),
        ({"ports": [{"port": 80}], "sessionAffinity": "ClientIP"}, "in turn"),
        ({"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}, "clusterIP only"),
    ],
)
def test_a_service_that_cannot_be_served_is_refused(space, spec, said):
    with pytest.raises(client.ApiException) as caught:
        space.core.create_namespaced_service(space.name, {"metadata": {"name": "bad"}, "spec": spec})

    assert (caught.value.status, said in caught.value.body) == (422, True)
