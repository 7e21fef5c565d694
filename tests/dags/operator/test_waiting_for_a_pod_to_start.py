"""How long a step waits for its pod, and what its log says meanwhile."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
from kubernetes.client import models as k8s

from plugins.slipway_airflow.starting import PodCannotStartError, Start

UNMOUNTED = 'MountVolume.SetUp failed for volume "site" : configmap "slipway-site" not found'
NO_ROOM = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


class Manager:
    """A pod manager whose pod changes as time passes; reading it is immediate, or awaited as in the triggerer."""

    def __init__(self, states, *, warnings=(), awaited=False):
        self.now, self._states, self._warnings, self._awaited = 0.0, states, warnings, awaited
        self.log = logging.getLogger("pod-manager")

    def read_pod(self, _):
        since = max(moment for moment in self._states if moment <= self.now)
        return self._answer(self._states[since])

    def read_pod_events(self, _):
        return self._answer(SimpleNamespace(items=[event(text) for text in self._warnings]))

    async def sleep(self, seconds):
        self.now += seconds

    def _answer(self, value):
        async def later():
            return value

        return later() if self._awaited else value


def event(message):
    involved = k8s.V1ObjectReference(kind="Pod", name="demo")
    return k8s.CoreV1Event(
        metadata=k8s.V1ObjectMeta(name="e"),
        involved_object=involved,
        type="Warning",
        reason="FailedMount",
        message=message,
    )


def pod(phase="Pending", *, scheduled=True, why=None):
    condition = k8s.V1PodCondition(type="PodScheduled", status=str(scheduled), message=why)
    return k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(name="demo", namespace="slipway"),
        status=k8s.V1PodStatus(phase=phase, conditions=[condition]),
    )


def waited(manager, schedule_s=600, start_s=600):
    start = Start(manager, schedule_s, start_s, clock=lambda: manager.now, sleep=manager.sleep)
    asyncio.run(start.wait(pod(), 1.0))
    return manager.now


@pytest.mark.parametrize("awaited", [False, True])
def test_a_pod_whose_site_is_missing_is_given_up_within_seconds(awaited):
    manager = Manager({0: pod()}, warnings=[UNMOUNTED], awaited=awaited)

    with pytest.raises(PodCannotStartError) as caught:
        waited(manager)

    assert "create configmap slipway-site --from-file=site.yaml" in caught.value.failure.remedy
    assert manager.now < 30


def test_a_pod_whose_site_arrives_in_time_starts():
    assert waited(Manager({0: pod(), 12: pod("Running")}, warnings=[UNMOUNTED])) == 12


def test_a_pod_that_no_node_takes_waits_and_the_log_says_why_once(caplog):
    manager = Manager({0: pod(scheduled=False, why=NO_ROOM), 300: pod("Running")})

    assert waited(manager) == 300
    assert [record.getMessage() for record in caplog.records] == [f"pod demo is not scheduled yet: {NO_ROOM}"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (pod(scheduled=False, why=NO_ROOM), f"was not scheduled within 600 s: {NO_ROOM}"),
        (pod(), "did not start within 600 s"),
    ],
)
def test_a_pod_that_takes_too_long_says_where_it_stands_and_is_tried_again(state, words):
    with pytest.raises(PodCannotStartError) as caught:
        waited(Manager({0: state}))

    assert words in str(caught.value)
    assert caught.value.failure.retry
