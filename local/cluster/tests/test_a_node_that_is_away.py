"""The node is taken away while the API server stays, and comes back."""

import subprocess
import sys

import pytest
from kubernetes import client

from .server import NAME, PACKAGE, ROOT, LocalCluster, Space

COUNT = "import time\nn = 0\nwhile True:\n n += 1; print(n, flush=True); time.sleep(0.1)"


@pytest.fixture
def cluster_of_a_node(tmp_path):
    server = LocalCluster(tmp_path)
    server.more_options = ("--node-grace-s", "0.2")
    server.start()
    yield server
    server.stop()


def switch(cluster, word):
    command = [sys.executable, "-m", PACKAGE, word, "--state", str(cluster.state)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=180)


def ready(cluster):
    conditions = cluster.core.read_node(NAME).status.conditions
    return next(each.status for each in conditions if each.type == "Ready")


def served(space):
    """Whether each endpoint of the Service is ready."""
    slices = client.DiscoveryV1Api(space.cluster.api_client).list_namespaced_endpoint_slice(space.name).items
    return [each.conditions.ready for one in slices for each in one.endpoints or []]


def test_pods_go_on_without_their_endpoints_and_are_taken_over_when_the_node_is_back(cluster_of_a_node, until):
    cluster = cluster_of_a_node
    space = Space(cluster, "away")
    space.run("counts", COUNT, metadata={"name": "counts", "labels": {"app": "a"}})
    ports = [{"port": 80}]
    space.core.create_namespaced_service(
        space.name, {"metadata": {"name": "counts"}, "spec": {"selector": {"app": "a"}, "ports": ports}}
    )
    until(lambda: served(space) == [True])
    before = space.pod("counts").status.container_statuses[0]

    switch(cluster, "stop-node")
    until(lambda: ready(cluster) == "Unknown")
    until(lambda: served(space) == [False])
    counted = len(space.logs("counts").splitlines())
    space.run("late", "pass")
    until(lambda: len(space.logs("counts").splitlines()) > counted)

    assert space.pod("late").status.phase == "Pending"
    assert {taint.key for taint in cluster.core.read_node(NAME).spec.taints} == {"node.kubernetes.io/unreachable"}
    events = space.core.list_namespaced_event(space.name, field_selector="involvedObject.name=counts").items
    assert ("Warning", "NodeNotReady") in {(event.type, event.reason) for event in events}

    switch(cluster, "start-node")
    until(lambda: served(space) == [True])

    assert space.finished("late").status.phase == "Succeeded"
    after = space.pod("counts").status.container_statuses[0]
    assert (after.container_id, after.restart_count) == (before.container_id, 0)
    assert (ready(cluster), cluster.core.read_node(NAME).spec.taints) == ("True", None)
