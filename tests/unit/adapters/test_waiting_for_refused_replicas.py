"""A Deployment some of whose replicas the cluster refuses: room in a quota is waited for, another refusal stays."""

import pytest

from slipway.tasks.adapters.kube.availability import REVISION, Wait
from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.site.site import StartBudget
from tests.fakes.clock import ManualClock

# as the controllers of Kubernetes 1.36 write them
EXCEEDED = 'pods "demo-1-x7f9d" is forbidden: exceeded quota: serving, requested: pods=1, used: pods=1, limited: pods=1'
TOO_LARGE = 'pods "demo-1-x7f9d" is forbidden: [maximum memory usage per Container is 512Mi, but limit is 2Gi]'
DENIED = 'admission webhook "policy.example.com" denied the request: no latest tags'
NO_WEBHOOK = 'Internal error occurred: failed calling webhook "policy.example.com": connection refused'
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
    """A namespace with one of two replicas, until the cluster allows the other one.

    As Kubernetes 1.36 it tries again after pauses that double, and when an annotation of the Deployment changes.
    """

    namespace = "slipway-serving"

    def __init__(self, clock, room_after_s, refusal):
        self.clock, self.room_after_s = clock, room_after_s
        self.tried_at, self.tries_at, self.pause_s = 0.0, 1.0, 1.0
        self.refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": refusal}

    def get(self, kind, name):
        while self.tries_at <= self.clock.monotonic():
            self.tried_at, self.pause_s = self.tries_at, 2 * self.pause_s
            self.tries_at += self.pause_s
        room = self.tried_at >= self.room_after_s
        ready = 2 if room else 1
        status = {"observedGeneration": 1, "replicas": ready, "updatedReplicas": ready, "availableReplicas": ready}
        available = {"type": "Available", "status": str(room)}
        status |= {"readyReplicas": ready, "conditions": [available] if room else [available, self.refused]}
        metadata = {"name": name, "generation": 1, "annotations": {REVISION: "1"}}
        template = {"spec": {"containers": [{"name": "triton"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "demo"}}, "template": template}
        return {"kind": kind, "metadata": metadata, "spec": spec, "status": status}

    def find(self, kind, labels):
        if kind == "ReplicaSet":
            of_template = {"pod-template-hash": "7"}
            return [{"metadata": {"name": "demo-1", "labels": of_template, "annotations": {REVISION: "1"}}}]
        return [RUNNING]

    def annotate(self, kind, name, annotations):
        self.tries_at = self.clock.monotonic()

    def events(self, name):
        return []

    def log_tail(self, pod, container):
        return ""


def waited(room_after_s, refusal=EXCEEDED, schedule_min=1):
    clock = ManualClock()
    cluster = Crowded(clock, room_after_s, refusal)
    Wait(cluster, clock, "Deployment", "demo-1", 30, StartBudget(schedule_min=schedule_min, pull_min=1)).run()
    return clock.monotonic()


def test_a_replica_that_a_quota_refuses_waits_as_long_as_for_a_node_and_the_quota_is_named():
    with pytest.raises(UnavailableError) as caught:
        waited(room_after_s=10_000)

    assert "waited 60 s for room in a quota, as long as budgets.cpu.schedule_min" in str(caught.value)
    assert "exceeded quota: serving" in str(caught.value)
    assert "Raise the ResourceQuota of the namespace" in caught.value.remedy


def test_a_quota_that_gets_room_in_time_costs_the_program_none_of_its_time():
    assert 45 <= waited(room_after_s=45, schedule_min=2) < 65


def test_room_in_a_quota_is_noticed_within_half_a_minute_however_long_it_took():
    assert 530 <= waited(room_after_s=530, schedule_min=30) < 565


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (TOO_LARGE, "change it, or the shape of its servers in the site file"),
        (DENIED, "webhook policy.example.com forbids it"),
    ],
)
def test_replicas_that_the_cluster_forbids_are_not_waited_for(refusal, remedy):
    with pytest.raises(
        InputError, match="slipway-serving/demo-1: the cluster refuses its pods: FailedCreate"
    ) as caught:
        waited(10_000, refusal)

    assert refusal in str(caught.value)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("refusal", [TOO_LARGE, NO_WEBHOOK])
def test_a_refusal_of_a_control_plane_that_is_starting_costs_its_time_alone(refusal):
    assert 15 <= waited(15, refusal) < 20


def test_a_webhook_that_does_not_answer_is_waited_for_as_long_as_a_node():
    with pytest.raises(UnavailableError, match="failed calling webhook"):
        waited(10_000, NO_WEBHOOK)
