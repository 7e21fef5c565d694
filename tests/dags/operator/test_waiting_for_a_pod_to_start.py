"""How long a step waits for its pod, and what its log says meanwhile."""

import asyncio
import json
import logging
import re
from types import SimpleNamespace

import pytest
from kubernetes.client import ApiException
from kubernetes.client import models as k8s

from slipway.airflow.starting import PodCannotStartError, Start, StepPodManager

UNMOUNTED = 'MountVolume.SetUp failed for volume "site" : configmap "slipway-site" not found'
NO_CLAIM = '0/3 nodes are available: persistentvolumeclaim "models" not found. preemption: 0/3 nodes are available.'
NO_ROOM = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


class Manager:
    """A pod manager whose pod changes as time passes; reading it is immediate, or awaited as in the triggerer."""

    def __init__(self, states, *, events=(), awaited=False):
        self.now, self._states, self._events, self._awaited = 0.0, states, events, awaited
        self.log = logging.getLogger("pod-manager")

    def read_pod(self, _):
        since = max(moment for moment in self._states if moment <= self.now)
        return self._answer(self._states[since])

    def read_pod_events(self, _):
        return self._answer(SimpleNamespace(items=list(self._events)))

    async def sleep(self, seconds):
        self.now += seconds

    def _answer(self, value):
        async def later():
            return value

        return later() if self._awaited else value


def event(message, reason="FailedMount", kind="Warning"):
    involved = k8s.V1ObjectReference(kind="Pod", name="demo")
    return k8s.CoreV1Event(
        metadata=k8s.V1ObjectMeta(name="e"),
        involved_object=involved,
        type=kind,
        reason=reason,
        message=message,
    )


def pod(phase="Pending", *, scheduled=True, why=None, waiting="ContainerCreating", gpus=False):
    condition = k8s.V1PodCondition(type="PodScheduled", status=str(scheduled), message=why)
    state = k8s.V1ContainerState(waiting=k8s.V1ContainerStateWaiting(reason=waiting))
    status = k8s.V1ContainerStatus(name="base", image="i", image_id="", ready=False, restart_count=0, state=state)
    limits = {"nvidia.com/gpu": "1"} if gpus else {}
    container = k8s.V1Container(name="base", resources=k8s.V1ResourceRequirements(limits=limits))
    return k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(name="demo", namespace="slipway"),
        spec=k8s.V1PodSpec(containers=[container]),
        status=k8s.V1PodStatus(phase=phase, conditions=[condition], container_statuses=[status] if scheduled else None),
    )


def waited(manager, schedule_s=600, pull_s=600):
    start = Start(manager, schedule_s, pull_s, clock=lambda: manager.now, sleep=manager.sleep)
    asyncio.run(start.wait(pod(), 1.0))
    return manager.now


@pytest.mark.parametrize("awaited", [False, True])
def test_a_pod_whose_site_is_missing_is_given_up_within_seconds(awaited):
    manager = Manager({0: pod()}, events=[event(UNMOUNTED)], awaited=awaited)

    with pytest.raises(PodCannotStartError) as caught:
        waited(manager)

    assert "create configmap slipway-site --from-file=site.yaml" in caught.value.failure.remedy
    assert manager.now < 30


@pytest.mark.parametrize("awaited", [False, True])
def test_a_pod_whose_claim_is_missing_is_given_up_within_seconds(awaited):
    """Of a model on a volume: it would wait for a node as long as the site allows."""
    manager = Manager({0: pod(scheduled=False, why=NO_CLAIM)}, awaited=awaited)

    with pytest.raises(PodCannotStartError) as caught:
        waited(manager)

    assert "Create claim slipway/models" in caught.value.failure.remedy
    assert not caught.value.failure.retry
    assert manager.now < 30


def test_a_pod_whose_site_arrives_in_time_starts():
    assert waited(Manager({0: pod(), 12: pod("Running")}, events=[event(UNMOUNTED)])) == 12


def test_the_log_says_what_a_pod_waits_for_in_which_phase_and_how_long_each_took(caplog):
    scale_up = event("Pod should schedule on: nodeclaim/nvidia-l4-x", "Nominated", kind="Normal")
    manager = Manager(
        {0: pod(scheduled=False, why=NO_ROOM), 300: pod(waiting="ContainerCreating"), 420: pod("Running")},
        events=[scale_up, event('Pulling image "tasks-gpu:1"', "Pulling", kind="Normal")],
    )

    with caplog.at_level(logging.INFO):
        assert waited(manager) == 420

    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == f"pod demo waits for a node (schedule 0 of 600 s): Unschedulable: {NO_ROOM}"
    assert any("schedule 30 of 600 s): Nominated: Pod should schedule on: nodeclaim/nvidia-l4-x" in x for x in lines)
    pulling = (
        'pod demo waits for images and volumes (schedule 300 of 600 s, pull 30 of 600 s): Pulling: Pulling image "'
    )
    assert any(line.startswith(pulling) for line in lines)
    assert lines[-1] == "pod demo started: schedule 300 of 600 s, pull 120 of 600 s, run 0 s"


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize(
    ("states", "gave_up_at", "what", "field"),
    [
        ({0: pod(scheduled=False, why=NO_ROOM)}, 600, "600 s for a node", "budgets.cpu.schedule_min"),
        ({0: pod(gpus=True)}, 900, "900 s for images and volumes", "budgets.gpu.pull_min"),
    ],
)
def test_a_phase_that_uses_its_budget_up_is_named_with_its_field_and_tried_again(
    awaited, states, gave_up_at, what, field
):
    manager = Manager(states, awaited=awaited)

    with pytest.raises(PodCannotStartError) as caught:
        waited(manager, schedule_s=600, pull_s=900)

    assert f"{what}, as long as {field} of the site allows" in caught.value.failure.what
    assert f"raise {field} in the site file" in caught.value.failure.remedy
    assert (NO_ROOM in caught.value.failure.what) == (gave_up_at == 600)
    assert caught.value.failure.retry
    assert manager.now == gave_up_at


def test_a_long_wait_for_a_node_leaves_the_whole_time_for_the_image():
    manager = Manager({0: pod(scheduled=False, why=NO_ROOM), 590: pod(), 1150: pod("Running")})

    assert waited(manager, schedule_s=600, pull_s=600) == 1150


class Namespace:
    """The API of a namespace whose quota has room from some moment on."""

    def __init__(
        self, *, room_at=0.0, refusal="exceeded quota: compute, requested: pods=1, used: pods=20, limited: pods=20"
    ):
        self.now, self.room_at, self.refusal, self.tries = 0.0, room_at, refusal, 0

    def create_namespaced_pod(self, *, body, namespace):
        self.tries += 1
        if self.now >= self.room_at:
            return body
        error = ApiException(status=403, reason="Forbidden")
        error.body = json.dumps({"message": f'pods "{body["metadata"]["name"]}" is forbidden: {self.refusal}'})
        raise error

    def sleep(self, seconds):
        self.now += seconds


def created(namespace, schedule_s=600):
    manager = StepPodManager(
        kube_client=namespace, schedule_timeout_s=schedule_s, clock=lambda: namespace.now, sleep=namespace.sleep
    )
    return manager.create_pod(pod(gpus=True))


def test_a_pod_waits_for_room_in_a_quota_and_says_so(capsys):
    namespace = Namespace(room_at=95)

    made = created(namespace)

    assert made["metadata"]["name"] == "demo"
    log = capsys.readouterr().out
    assert re.findall(r"pod demo waits for room in a quota \(schedule (\d+) of 600 s\)", log) == ["0", "30", "60", "90"]
    assert "exceeded quota: compute, requested: pods=1, used: pods=20" in log


def test_a_quota_without_room_for_too_long_is_named_with_the_field_that_gives_more_time():
    namespace = Namespace(room_at=10_000)

    with pytest.raises(PodCannotStartError) as caught:
        created(namespace, schedule_s=60)

    assert namespace.now == 60
    failure = caught.value.failure
    assert "waited 60 s for room in a quota, as long as budgets.gpu.schedule_min of the site allows" in failure.what
    assert "exceeded quota: compute" in failure.what
    assert "Raise the ResourceQuota" in failure.remedy
    assert failure.retry


def test_a_pod_that_is_refused_for_another_reason_is_not_waited_for():
    namespace = Namespace(room_at=10_000, refusal="violates PodSecurity")

    with pytest.raises(ApiException):
        created(namespace)

    assert namespace.tries == 1
