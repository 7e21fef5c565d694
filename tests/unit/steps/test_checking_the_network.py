"""check-network: what is measured, judged and kept, and that nothing of a measurement stays."""

import json
from datetime import timedelta

import pytest

from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.site.network_check import AllReduce, NetworkRecord
from slipway.tasks.serving.rendered import network_check
from slipway.tasks.steps import check_network
from tests.contracts.recorded import check_object, contract
from tests.fakes.documents.gpu_site import gpu_site
from tests.fakes.documents.rollouts import version
from tests.fakes.kube.cluster import in_memory
from tests.fakes.releases import SPEC
from tests.support.refused import refused
from tests.unit.manifests.objects import MANIFESTS, violations

A10G = "NVIDIA-A10G"
FLOOR = {"min_gb_per_s": 10, "size_mib": 256, "valid_h": 24, "timeout_s": 120}


def settings(**network):
    document = gpu_site().model_dump(mode="json", exclude={"apiVersion", "kind", "name"})
    document["gpus"][A10G]["network"] = {**FLOOR, **network} if network is not None else None
    return document


def made(pipeline=2, kind="trt-engine"):
    engine = {**SPEC["engine"], "kind": kind, "gpu": A10G, "tensor_parallel": 4, "pipeline_parallel": pipeline}
    return version(1, quantization={"format": "none"}, engine=engine)


def node(number, uid=None):
    labels = {"nvidia.com/gpu.product": A10G}
    return {
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "uid": uid or f"uid-{number}", "labels": labels},
        "spec": {},
    }


def result(gb_per_s=20.0, ranks=8):
    """What rank 0 reports of a network this fast."""
    size = 256 * 2**20
    seconds = 2 * (ranks - 1) / ranks * size / (gb_per_s * 1e9)
    return AllReduce(ranks=ranks, size_bytes=size, seconds=seconds, backend="nccl").model_dump_json()


class Measured:
    """The LeaderWorkerSet controller and the kubelet: two pods on two nodes, whose leader ends as scripted."""

    def __init__(self, cluster, release, *, message=None, code=0, runs=True):
        self.cluster, self.release = cluster, release
        self.message, self.code, self.runs = message or result(), code, runs
        self.started = []
        self.find, cluster.find = cluster.find, self.pods
        cluster.nodes = lambda labels: [node(0), node(1)]
        cluster.events = lambda name: []
        cluster.log_tail = lambda pod, container: "NCCL WARN connection refused"

    def pods(self, kind, labels):
        name = network_check.name_of(self.release)
        if kind != "Pod" or ("LeaderWorkerSet", name) not in self.cluster.objects:
            return self.find(kind, labels)
        self.started.append(name)
        assert labels == {network_check.CHECK_LABEL: self.release.id}
        return [self._pod(0, "leader"), self._pod(1, "node")]

    def _pod(self, number, container):
        state = {"running": {}}
        last = {}
        if container == "leader" and self.runs:  # the kubelet restarts it at once
            last = {"terminated": {"exitCode": self.code, "message": self.message}}
        status = {"name": container, "state": state, "lastState": last, "restartCount": len(last)}
        return {
            "metadata": {"name": f"network-{number}"},
            "spec": {"nodeName": f"node-{number}", "containers": [{"name": container}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "True"}], "containerStatuses": [status]},
        }


class MeasuredBefore(Measured):
    """The cluster after a run that was killed: its pods stay for a while, and their leader has a result."""

    def __init__(self, workspace, release, *, stay_s):
        self.clock, self.until, self.left = workspace.clock, workspace.clock.monotonic() + stay_s, result(1.0)
        super().__init__(workspace.connection, release)

    def pods(self, kind, labels):
        if kind != "Pod" or self.clock.monotonic() >= self.until:
            return super().pods(kind, labels)
        fresh, self.message = self.message, self.left
        left, self.message = [self._pod(0, "leader"), self._pod(1, "node")], fresh
        return left


@pytest.fixture
def workspace(tmp_path):
    return in_memory(tmp_path, **settings())


def sets(workspace):
    return [name for kind, name in workspace.connection.objects if kind == "LeaderWorkerSet"]


def evidence(workspace, release):
    uri = f"{workspace.layout.evidence('demo', release.id, release.plan.run)}/network.json"
    return json.loads(workspace.store.read_bytes(uri))


def test_a_fast_network_passes_with_its_bandwidth_and_nodes_in_the_evidence(workspace):
    release = made()
    Measured(workspace.connection, release)

    outcome = check_network.run(release, workspace)

    assert outcome.summary == "20.0 GB/s over 8 GPUs of node-0, node-1"
    kept = evidence(workspace, release)
    assert (round(kept["gb_per_s"], 6), kept["min_gb_per_s"], kept["ranks"]) == (20.0, 10.0, 8)
    assert [each["uid"] for each in kept["nodes"]] == ["uid-0", "uid-1"]
    assert sets(workspace) == []


def test_a_slow_network_is_refused_with_both_numbers_and_measured_again_next_time(workspace):
    release = made()
    measured = Measured(workspace.connection, release, message=result(9.9))

    for _ in range(2):
        with refused(found="9.90 GB/s over 8 GPUs", expected="at least 10 GB/s", remedy="EFA"):
            check_network.run(release, workspace)

    assert len(measured.started) == 2
    assert round(evidence(workspace, release)["gb_per_s"], 6) == 9.9
    assert sets(workspace) == []


@pytest.mark.parametrize(
    ("hours", "present", "again"),
    [
        (23, [node(0), node(1)], False),
        (25, [node(0), node(1)], True),
        (1, [node(0), node(1), node(2)], True),
        (1, [node(0), node(1, "another machine")], True),
        (1, [node(0)], True),
    ],
)
def test_the_same_nodes_and_image_are_not_measured_again_for_as_long_as_the_site_says(workspace, hours, present, again):
    release = made()
    measured = Measured(workspace.connection, release)
    check_network.run(release, workspace)
    workspace.clock.sleep(timedelta(hours=hours).total_seconds())
    workspace.connection.nodes = lambda labels: present

    outcome = check_network.run(release, workspace)

    assert len(measured.started) == 1 + again
    assert outcome.stored is not again


def test_another_image_is_measured_again(workspace):
    release = made()
    measured = Measured(workspace.connection, release)
    check_network.run(release, workspace)
    uri = workspace.layout.network(A10G)
    record = NetworkRecord.model_validate_json(workspace.store.read_bytes(uri))
    workspace.store.put_bytes(uri, record.model_copy(update={"image": "older"}).model_dump_json().encode())

    check_network.run(release, workspace)

    assert len(measured.started) == 2


@pytest.mark.parametrize(("code", "error"), [(75, UnavailableError), (1, UnavailableError), (143, UnavailableError)])
def test_ranks_that_do_not_reach_each_other_are_tried_again_with_their_last_output(workspace, code, error):
    release = made()
    Measured(workspace.connection, release, message="x", code=code)

    with refused(error, found="NCCL WARN connection refused"):
        check_network.run(release, workspace)

    assert sets(workspace) == []


def test_wrong_sums_are_not_tried_again(workspace):
    release = made()
    Measured(workspace.connection, release, message="sums are wrong", code=65)

    with refused(what="ended with exit code 65"):
        check_network.run(release, workspace)


def test_a_measurement_without_a_result_ends_in_time_and_leaves_nothing(workspace):
    release = made()
    Measured(workspace.connection, release, runs=False)
    began = workspace.clock.monotonic()

    with refused(UnavailableError, what="run 120 of 120 s"):
        check_network.run(release, workspace)

    assert 120 <= workspace.clock.monotonic() - began < 130
    assert sets(workspace) == []


def test_the_result_of_a_killed_run_s_pods_is_not_taken_for_the_new_one(workspace):
    release = made()
    MeasuredBefore(workspace, release, stay_s=20)

    outcome = check_network.run(release, workspace)

    assert outcome.summary.startswith("20.0 GB/s")


def test_pods_of_a_killed_run_that_never_go_are_named_and_nothing_is_started(workspace):
    release = made()
    MeasuredBefore(workspace, release, stay_s=10_000)

    with refused(UnavailableError, what="still there after 120 s", found="network-0, network-1"):
        check_network.run(release, workspace)

    assert sets(workspace) == []


def test_a_release_on_one_node_and_a_site_without_a_floor_measure_nothing(workspace, tmp_path):
    without = settings()
    without["gpus"][A10G]["network"] = None

    single = check_network.run(made(pipeline=1), workspace)
    unlimited = check_network.run(made(), in_memory(tmp_path, **without))

    assert "one node" in single.summary
    assert "no gpus.NVIDIA-A10G.network" in unlimited.summary
    assert workspace.connection.changes == []


def test_the_pods_of_a_measurement_are_those_of_the_release_and_follow_the_schema():
    release, site = made(), gpu_site(gpus=settings()["gpus"])
    floor = site.gpus[A10G].network

    [item] = network_check.workload(release, floor, site, MANIFESTS / "serving")

    check_object(item, contract("leaderworkerset.json")["openAPIV3Schema"])
    where = ResolvedRelease(release.spec, site).serving
    group = item["spec"]["leaderWorkerTemplate"]
    assert (group["size"], group["restartPolicy"]) == (2, "None")
    for template in (group["leaderTemplate"], group["workerTemplate"]):
        pod = template["spec"]
        assert violations(pod) == []
        assert pod["nodeSelector"] == where.shape.node_selector
        [container] = pod["containers"]
        assert container["image"] == where.image
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert len(item["metadata"]["name"]) + len("-0") + 11 <= 63


def test_bus_bandwidth_is_that_of_a_ring():
    measured = AllReduce(ranks=4, size_bytes=10**9, seconds=0.5, backend="gloo")

    assert measured.bus_gb_per_s == pytest.approx(2 * 3 / 4 * 1.0 / 0.5)
