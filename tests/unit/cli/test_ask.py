"""`slipway ask` from outside the cluster: by the Kubernetes API, an external address, or the one that was given."""

import os
import re
import socket
import subprocess
import sys

import pytest

from slipway.cli.ask.generate import Piece
from slipway.cli.ask.printed_answer import PrintedAnswer
from tests.fakes.kube.kube_api import NAMESPACE, KubeApiServer
from tests.fakes.servers.triton_http import TritonHttpServer
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml
from tests.unit.cli.test_imports import HEAVY

ROLE = load_yaml((REPOSITORY / "k8s_manifests/base/role-user.yaml").read_text())
COUNTED = {"text_output": "", "finish_reason": "stop", "prompt_tokens": 7, "completion_tokens": 5}
PARIS = [{"text_output": "Par"}, {"text_output": "is."}, COUNTED]
POD = "demo-5b9-x7k"


@pytest.fixture
def triton():
    with TritonHttpServer(answers=PARIS) as server:
        yield server


@pytest.fixture
def cluster(triton, slipway, monkeypatch, tmp_path):
    """A cluster in which the model `demo` is live, and the person has the Role for people."""
    assert ROLE["metadata"]["namespace"] == NAMESPACE
    with KubeApiServer(ROLE["rules"]) as server:
        server.objects = {
            "services": [service("demo")],
            "endpointslices": [endpoints("demo", triton.port)],
            "pods": [pod()],
        }
        monkeypatch.setenv("SLIPWAY_SITE", str(REPOSITORY / "sites/kind.yaml"))
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        yield server


def service(name, **spec):
    labels = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/role": "live"}
    # the pod's own port has another number, as it does behind a proxy in the pod
    ports = [{"name": "grpc", "port": 8001, "targetPort": "grpc"}, {"name": "http", "port": 80, "targetPort": "http"}]
    spec = {"type": "ClusterIP", "clusterIP": "10.96.0.7", "ports": ports, "selector": {"app": "demo"}, **spec}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def endpoints(name, port, *, ready=True):
    target = {"kind": "Pod", "name": POD}
    return {
        "metadata": {"name": f"{name}-abc", "labels": {"kubernetes.io/service-name": name}},
        "ports": [{"name": "grpc", "port": 1}, {"name": "http", "port": port}],
        "endpoints": [{"addresses": ["10.0.0.9"], "conditions": {"ready": ready}, "targetRef": target}],
    }


def pod(phase="Running", **state):
    statuses = [{"name": "server", "ready": not state, "state": state or {"running": {}}}]
    status = {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": statuses}
    labels = {"app": "demo"}
    return {"metadata": {"name": POD, "namespace": NAMESPACE, "uid": "u-1", "labels": labels}, "status": status}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_model_is_asked_through_a_forwarded_port_of_a_ready_pod(slipway, cluster, triton):
    code, printed = slipway("ask", "demo", "What is the capital of France?", "--stats")

    assert (code, printed.partition("[")[0]) == (0, "Paris.\n")
    assert re.search(
        rf"\[5 tokens in \d+\.\d\d s, TTFT \d+\.\d+ s, \d+\.\d tokens/s, ended by stop; pod {POD}\]", printed
    )
    assert triton.asked == [
        {"text_input": "What is the capital of France?", "max_tokens": 128, "stream": True, "temperature": 0.0}
    ]


THOUGHTS = [{"text_output": "", "reasoning_content": "France? "}, {"text_output": "", "reasoning_content": "Easy."}]


@pytest.mark.parametrize("options", [[], ["--no-stream"]])
@pytest.mark.parametrize(("asked", "before"), [([], ""), (["--thoughts"], "France? Easy.\n\n")])
def test_thoughts_stay_out_of_a_pipe_unless_they_are_asked_for(slipway, cluster, triton, options, asked, before):
    triton.answers = [*THOUGHTS, *PARIS]

    assert slipway("ask", "demo", "Who?", *options, *asked) == (0, f"{before}Paris.\n")


def test_a_terminal_shows_thoughts_dimmed_before_the_answer(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    pieces = [Piece("", 0.0, "", thought="Hm."), Piece("Yes.", 0.0, "stop")]
    PrintedAnswer().print(pieces, stream=True, thoughts=True)

    assert capsys.readouterr().out == "\x1b[2mHm.\x1b[0m\n\nYes.\n"


def test_arguments_of_the_chat_template_are_sent_with_the_question(slipway, cluster, triton):
    triton.inputs = (*triton.inputs, "chat_template_kwargs")

    assert slipway("ask", "demo", "Who?", "--chat-template-kwargs", '{"enable_thinking": false}')[0] == 0
    assert triton.asked[0]["chat_template_kwargs"] == '{"enable_thinking": false}'


@pytest.mark.parametrize("text", ["enable_thinking=false", "[1]"])
def test_arguments_that_are_not_an_object_are_refused(slipway, cluster, text):
    code, printed = slipway("ask", "demo", "Who?", "--chat-template-kwargs", text)

    assert code == 65
    assert "--chat-template-kwargs is not a JSON object" in printed


def test_the_role_for_people_allows_each_request_of_a_question_and_nothing_more(slipway, cluster):
    slipway("ask", "demo", "Who?")
    cluster.objects["endpointslices"] = []
    slipway("ask", "demo", "Who?")
    cluster.objects["services"] = []
    slipway("ask", "demo", "Who?")

    granted = {(verb, resource) for rule in ROLE["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert set(cluster.asked) == {
        ("get", "services"),
        ("list", "services"),
        ("list", "endpointslices"),
        ("list", "pods"),
        ("get", "pods/portforward"),
        ("create", "pods/portforward"),
    }
    # kubectl port-forward reads the pod before it connects; `status` reads which runs hold models
    assert granted - set(cluster.asked) == {("get", "pods"), ("get", "leases"), ("list", "leases")}


@pytest.mark.parametrize("resource", ["services", "endpointslices", "pods/portforward"])
def test_a_person_without_the_role_is_told_which_role_to_be_bound_to(slipway, cluster, resource):
    cluster.rules = [rule for rule in ROLE["rules"] if resource not in rule["resources"]]

    code, printed = slipway("ask", "demo", "Who?")

    assert code == 65
    assert "is forbidden" in printed
    assert "Role slipway-user in namespace slipway-serving" in printed


def test_credentials_that_have_expired_are_said_to_be(slipway, cluster):
    cluster.token = "another"

    code, printed = slipway("ask", "demo", "Who?")

    assert code == 65
    assert "credentials are wrong or have expired" in printed


def test_an_external_address_is_used_where_the_service_has_one(slipway, cluster, triton):
    ports = [{"name": "http", "port": triton.port, "targetPort": "http"}]
    balanced = service("demo", type="LoadBalancer", ports=ports)
    balanced["status"] = {"loadBalancer": {"ingress": [{"ip": "127.0.0.1"}]}}
    cluster.objects = {"services": [balanced]}

    code, printed = slipway("ask", "demo", "Who?", "--stats")

    assert code == 0
    assert f"127.0.0.1:{triton.port}]" in printed


def test_a_load_balancer_without_an_address_yet_is_bypassed(slipway, cluster):
    cluster.objects["services"] = [service("demo", type="LoadBalancer") | {"status": {"loadBalancer": {}}}]

    assert f"pod {POD}]" in slipway("ask", "demo", "Who?", "--stats")[1]


def test_a_given_host_is_asked_without_a_look_into_the_cluster(slipway, cluster, triton):
    code, printed = slipway("ask", "demo", "Who?", "--host", f"localhost:{triton.port}")

    assert (code, cluster.asked) == (0, [])
    assert printed.startswith("Paris.")


@pytest.mark.parametrize(
    "host", ["http://localhost:8000", "me@localhost", "localhost:http", "localhost:8000/v2", ":80"]
)
def test_a_host_that_is_not_an_address_is_a_wrong_input(slipway, host):
    code, printed = slipway("ask", "demo", "Who?", "--host", host)

    assert code == 65
    assert "expected HOST or HOST:PORT" in printed


def test_a_host_where_nobody_answers_may_be_asked_again(slipway):
    code, printed = slipway("ask", "demo", "Who?", "--host", f"127.0.0.1:{free_port()}")

    assert code == 75
    assert "Connection refused" in printed


def test_an_answer_may_take_as_long_as_the_person_gives_it(slipway, triton):
    triton.go_on.clear()

    code, printed = slipway("ask", "demo", "Capital?", "--host", f"127.0.0.1:{triton.port}", "--timeout", "1")

    assert code == 75
    assert "demo did not finish its answer within 1 s" in printed
    assert "--timeout" in printed


def test_the_candidate_has_a_service_of_its_own(slipway, cluster, triton):
    code, printed = slipway("ask", "demo", "Who?", "--candidate")
    assert code == 65
    assert "demo has no candidate" in printed

    cluster.objects["services"].append(service("demo-candidate"))
    cluster.objects["endpointslices"].append(endpoints("demo-candidate", triton.port))

    assert slipway("ask", "demo", "Who?", "--candidate")[0] == 0


def test_a_name_that_is_not_live_is_answered_with_those_that_are(slipway, cluster):
    code, printed = slipway("ask", "deno", "Who?")

    assert code == 65
    assert "no release of deno is live" in printed
    assert "these live models: demo" in printed
    assert "`slipway release deno`" in printed


def test_a_pod_that_is_not_ready_says_what_it_waits_for(slipway, cluster, triton):
    cluster.objects["endpointslices"] = [endpoints("demo", triton.port, ready=False)]
    cluster.objects["pods"] = [pod("Pending", waiting={"reason": "CrashLoopBackOff"})]

    code, printed = slipway("ask", "demo", "Who?")

    assert code == 75
    assert "no pod of Service slipway-serving/demo is ready: found server waiting (CrashLoopBackOff)" in printed


def test_a_port_that_the_pod_does_not_listen_on_is_told_by_the_node(slipway, cluster):
    cluster.objects["endpointslices"] = [endpoints("demo", free_port())]

    code, printed = slipway("ask", "demo", "Who?")

    assert code == 75
    assert f"pod {POD} does not accept connections on port" in printed
    assert "connection refused" in printed


def test_a_question_takes_no_heavy_client(cluster):
    code = "import sys, slipway.cli.__main__ as c\ntry: c.main()\nfinally: print(*sys.modules, file=sys.stderr)"
    environment = {name: os.environ[name] for name in ("PATH", "SLIPWAY_SITE", "KUBECONFIG")}
    environment["PYTHONPATH"] = str(REPOSITORY)
    command = [sys.executable, "-c", code, "ask", "demo", "Who?"]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == "Paris.\n"
    assert {name.partition(".")[0] for name in done.stderr.split()} & HEAVY == set()


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(slipway, cluster, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")

    assert slipway("ask", "demo", "Who?")[0] == 0


def test_another_cluster_is_reached_through_the_proxy_of_the_environment(slipway, cluster, monkeypatch, tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kubeconfig.read_text().replace(cluster.address, "http://cluster.invalid"))
    # the server stands for a proxy too: it looks at the path alone
    monkeypatch.setenv("http_proxy", cluster.address)

    code, printed = slipway("ask", "nope", "Who?")

    assert code == 65
    assert "these live models: demo" in printed


def test_a_cluster_that_is_not_reachable_is_named_with_what_to_check(slipway, cluster):
    address = cluster.address
    cluster.__exit__()

    code, printed = slipway("ask", "demo", "Who?")

    cluster.__enter__()
    assert code == 75
    assert f"cannot connect to the cluster at {address}" in printed
    assert "Check KUBECONFIG" in printed
