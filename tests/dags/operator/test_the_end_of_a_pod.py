"""How soon a step notices that its container has ended. Its log ends first; a kubelet reports the end up to a second later."""

from datetime import UTC, datetime, timedelta

import pytest
from kubernetes.client import models as k8s

from plugins.slipway_airflow.starting import StepPodManager, StepPodTrigger, look_interval_s

POD = k8s.V1Pod(metadata=k8s.V1ObjectMeta(name="demo", namespace="slipway"))


class Cluster:
    """A cluster that reports the container's end from one moment on, and the phase that follows from another one on."""

    def __init__(self, reported_at, phase_at=float("inf"), exit_code=0):
        self.now, self.reported_at, self.phase_at, self.reads = 0.0, reported_at, phase_at, 0
        self.exit_code = exit_code

    def read_namespaced_pod(self, *_):
        self.reads += 1
        end = k8s.V1ContainerStateTerminated(exit_code=self.exit_code)
        state = (
            k8s.V1ContainerState(terminated=end) if self.now >= self.reported_at else k8s.V1ContainerState(running={})
        )
        status = k8s.V1ContainerStatus(name="base", image="i", image_id="", ready=False, restart_count=0, state=state)
        phase = "Running" if self.now < self.phase_at else "Failed" if self.exit_code else "Succeeded"
        return k8s.V1Pod(
            metadata=POD.metadata,
            spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="base")]),
            status=k8s.V1PodStatus(phase=phase, container_statuses=[status]),
        )

    def sleep(self, seconds):
        self.now += seconds


def manager(cluster):
    return StepPodManager(kube_client=cluster, schedule_timeout_s=600, clock=lambda: cluster.now, sleep=cluster.sleep)


def still_running(cluster):
    return manager(cluster).container_is_running(POD, "base")


def test_an_end_that_is_reported_costs_one_request():
    cluster = Cluster(reported_at=0)

    assert not still_running(cluster)
    assert (cluster.reads, cluster.now) == (1, 0)


def test_an_end_is_noticed_soon_after_its_report():
    cluster = Cluster(reported_at=0.75)

    assert not still_running(cluster)
    assert cluster.now < 0.9


def test_a_container_whose_log_only_broke_off_is_waited_for_briefly():
    cluster = Cluster(reported_at=3600)

    assert still_running(cluster)
    assert cluster.now < 2.2


def test_a_pod_whose_containers_have_succeeded_has_succeeded_before_its_phase_says_so():
    cluster = Cluster(reported_at=0.5)

    assert manager(cluster).await_pod_completion(POD).status.phase == "Succeeded"
    assert cluster.now < 0.8


def test_a_pod_whose_container_failed_has_failed_when_its_phase_says_so():
    cluster = Cluster(reported_at=0, phase_at=1.0, exit_code=75)

    assert manager(cluster).await_pod_completion(POD).status.phase == "Failed"
    assert 1.0 <= cluster.now < 2.0


@pytest.mark.parametrize(("elapsed_s", "expected"), [(0, 0.25), (4, 0.25), (20, 1.0), (40, 2.0), (7200, 2.0)])
def test_the_triggerer_looks_less_often_the_longer_a_step_takes(elapsed_s, expected):
    assert look_interval_s(elapsed_s, 2.0) == expected


def trigger(began):
    return StepPodTrigger(
        pod_name="demo", pod_namespace="slipway", trigger_start_time=began, base_container_name="base", poll_interval=2
    )


def test_a_trigger_that_moves_to_another_triggerer_keeps_its_longest_interval():
    moving = trigger(datetime.now(UTC))

    assert moving.poll_interval == 0.25
    assert StepPodTrigger(**moving.serialize()[1]).serialize()[1]["poll_interval"] == 2


def test_a_triggerer_that_starts_again_does_not_look_at_old_pods_as_often_as_at_new_ones():
    assert StepPodTrigger(**trigger(datetime.now(UTC) - timedelta(hours=1)).serialize()[1]).poll_interval == 2
