"""A Deployment of which a quota lets some replicas start: the others wait for room, and the wait is bounded."""

import pytest

from slipway.tasks.adapters.kube.availability import REVISION, Wait
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.site.site import StartBudget
from tests.fakes.clock import ManualClock

# as the controllers of Kubernetes 1.36 write them
EXCEEDED = 'pods "demo-1-x7f9d" is forbidden: exceeded quota: serving, requested: pods=1, used: pods=1, limited: pods=1'
REFUSED = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": EXCEEDED}
RUNNING = {
    "metadata": {"name": "demo-1-abcde", "uid": "u1"},
    "spec": {"containers": [{"name": "triton"}]},
    "status": {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [{"name": "triton", "ready": True, "state": {"running": {}}}],
    },
}


class Crowded:
    """A namespace with one of two replicas, until the quota has room."""

    namespace = "slipway-serving"

    def __init__(self, clock, room_after_s):
        self.clock, self.room_after_s = clock, room_after_s

    def get(self, kind, name):
        room = self.clock.monotonic() >= self.room_after_s
        ready = 2 if room else 1
        status = {"observedGeneration": 1, "replicas": ready, "updatedReplicas": ready, "availableReplicas": ready}
        available = {"type": "Available", "status": str(room)}
        status |= {"readyReplicas": ready, "conditions": [available] if room else [available, REFUSED]}
        metadata = {"name": name, "generation": 1, "annotations": {REVISION: "1"}}
        template = {"spec": {"containers": [{"name": "triton"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "demo"}}, "template": template}
        return {"kind": kind, "metadata": metadata, "spec": spec, "status": status}

    def find(self, kind, labels):
        if kind == "ReplicaSet":
            of_template = {"pod-template-hash": "7"}
            return [{"metadata": {"name": "demo-1", "labels": of_template, "annotations": {REVISION: "1"}}}]
        return [RUNNING]

    def events(self, name):
        return []

    def log_tail(self, pod, container):
        return ""


def waited(room_after_s):
    clock = ManualClock()
    cluster = Crowded(clock, room_after_s)
    Wait(cluster, clock, "Deployment", "demo-1", 30, StartBudget(schedule_min=1, pull_min=1)).run()
    return clock.monotonic()


def test_a_replica_that_a_quota_refuses_waits_as_long_as_for_a_node_and_the_quota_is_named():
    with pytest.raises(UnavailableError) as caught:
        waited(room_after_s=10_000)

    assert "waited 60 s for room in a quota, as long as budgets.cpu.schedule_min" in str(caught.value)
    assert "exceeded quota: serving" in str(caught.value)
    assert "Raise the ResourceQuota of the namespace" in caught.value.remedy


def test_a_quota_that_gets_room_in_time_costs_the_program_none_of_its_time():
    assert 45 <= waited(room_after_s=45) < 60
