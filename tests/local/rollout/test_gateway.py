"""The embedded cluster's gateway, by the API of a real one: matches, weights, mirrors, and what it reports."""

import collections
import http.client

import pytest

from slipway.tasks.adapters.kube.kube_errors import StaleError
from tests.local.stand_in_cluster import GATEWAY_PORT
from tests.support.refused import refused
from tests.support.waiting import PATIENCE_S, until

API = "gateway.networking.k8s.io/v1"
SHELL = {"command": ["tritonserver", "--http-address=$(POD_IP)", "--http-port=8000"]}
SHELL |= {"args": ["--metrics-address=$(POD_IP)", "--metrics-port=8002"]}


@pytest.fixture
def applied(cluster, site):
    """A function that applies a route."""

    def route(*rules, name="r", **spec):
        metadata = {"name": name, "namespace": site.kubernetes.serving_namespace}
        spec = {"parentRefs": [{"name": "models"}], "hostnames": ["m.test"], "rules": list(rules), **spec}
        cluster.apply([{"apiVersion": API, "kind": "HTTPRoute", "metadata": metadata, "spec": spec}])

    return route


@pytest.fixture
def served(cluster, site, applied):
    """Two Services, `one` and `two`, with a pod each; a function that applies a route and waits for its status."""
    namespace = site.kubernetes.serving_namespace
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    probe = {"httpGet": {"path": "/v2/health/ready", "port": 8000}, "periodSeconds": 1, "timeoutSeconds": 30}
    for each in ("one", "two"):
        container = {"name": "server", "image": "test/triton:good", "env": [address, name], "readinessProbe": probe}
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{**container, **SHELL}]}}
        service = {"apiVersion": "v1", "kind": "Service"}
        service["spec"] = {"selector": {"app": each}, "ports": [{"name": "http", "port": 8000}]}
        for item in (pod, service):
            item["metadata"] = {"name": each, "namespace": namespace, "labels": {"app": each}}
        cluster.apply([pod, service])
    until(lambda: cluster.endpoints("one") and cluster.endpoints("two"))

    def route(*rules, name="r", **spec):
        applied(*rules, name=name, **spec)
        return until(lambda: reported(cluster, name))

    return route


def reported(cluster, name):
    """Status and reason of each condition of the newest generation, by type."""
    route = cluster.get("HTTPRoute", name)
    (parent,) = (route.get("status") or {}).get("parents") or [{"conditions": []}]
    newest = route["metadata"]["generation"]
    found = [one for one in parent["conditions"] if one["observedGeneration"] == newest]
    return {one["type"]: (one["status"], one["reason"]) for one in found}


def ask(address, path="/", host="m.test", method="GET", **headers):
    connection = http.client.HTTPConnection(address, GATEWAY_PORT, timeout=PATIENCE_S)
    connection.request(method, path, headers={"Host": host, **{k.replace("_", "-"): v for k, v in headers.items()}})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def to(*names, **rule):
    return {"backendRefs": [{"name": name, "port": 8000} for name in names], **rule}


def test_the_most_specific_match_wins_whatever_the_order(served, gateway):
    header = {"headers": [{"name": "X-Canary", "value": "always"}]}
    served(to("one"), to("two", matches=[header, {"path": {"type": "Exact", "value": "/new"}}]))

    assert ask(gateway) == (200, "one")
    assert ask(gateway, X_Canary="always") == (200, "two")
    assert ask(gateway, X_Canary="never") == (200, "one")
    assert ask(gateway, "/new") == (200, "two")
    assert ask(gateway, "/newer") == (200, "one")
    assert ask(gateway, host="other.test")[0] == 404


def test_weights_are_shares_and_a_weight_of_zero_gets_nothing(served, gateway):
    references = [{"name": "one", "port": 8000, "weight": 60}, {"name": "two", "port": 8000, "weight": 20}]
    served({"backendRefs": references})

    counted = collections.Counter(ask(gateway)[1] for _ in range(300))

    assert 30 <= counted["two"] <= 120  # 75 are expected; 6 standard deviations are 45
    served({"backendRefs": [references[0], {**references[1], "weight": 0}]})
    assert {ask(gateway)[1] for _ in range(30)} == {"one"}


def test_a_mirror_gets_a_copy_and_the_client_the_answer_of_the_backend(served, gateway, cluster):
    mirror = {"backendRef": {"name": "two", "port": 8000}, "percent": 100}
    served(to("one", filters=[{"type": "RequestMirror", "requestMirror": mirror}]))

    answers = {ask(gateway, "/v2/models/demo/config")[1] for _ in range(20)}

    assert len(answers) == 1
    address = cluster.get("Pod", "two")["status"]["podIP"]
    until(lambda: gets(address) >= 20)


def gets(address):
    connection = http.client.HTTPConnection(address, 8002, timeout=PATIENCE_S)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    return int(next(line.rpartition(" ")[2] for line in page.splitlines() if line.startswith("stand_in_gets")))


def test_a_route_says_what_of_it_is_not_served(served, gateway):
    assert served(to("one"))["ResolvedRefs"] == ("True", "ResolvedRefs")
    assert served(to("missing"))["ResolvedRefs"] == ("False", "BackendNotFound")
    assert ask(gateway)[0] == 500
    elsewhere = served(to("one"), name="elsewhere", parentRefs=[{"name": "models", "sectionName": "https"}])
    assert elsewhere["Accepted"] == ("False", "NoMatchingParent")


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({"backendRefs": [{"name": "one"}]}, "'port' is a required property"),
        ({"backendRefs": [{"name": "one", "port": 8000, "weight": -1}]}, "-1 is less than the minimum of 0"),
        ({"filters": [{"type": "URLRewrite"}]}, "'URLRewrite' is not one of ['RequestMirror']"),
        ({"sessionPersistence": {}}, "'sessionPersistence' was unexpected"),
    ],
)
def test_a_route_that_is_wrong_or_needs_what_is_not_there_is_refused(applied, rule, found):
    with refused(what=found):
        applied(rule)


def test_an_old_version_of_a_route_is_not_written(applied, cluster):
    applied(to("one"))
    route = cluster.get("HTTPRoute", "r")
    applied(to("two"))

    item = {"apiVersion": API, "kind": "HTTPRoute", "spec": route["spec"]}
    names = ("name", "namespace", "resourceVersion")
    with pytest.raises(StaleError):
        cluster.apply([{**item, "metadata": {name: route["metadata"][name] for name in names}}])
