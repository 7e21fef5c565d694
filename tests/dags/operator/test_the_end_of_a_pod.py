"""How soon a step notices that its container has ended. Its log ends first; a kubelet reports the end up to a second later."""

import asyncio
import signal
import time
from datetime import UTC, datetime, timedelta

import pytest
from airflow.jobs.triggerer_job_runner import TriggerRunner, messages
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import TaskDeferred
from kubernetes.client import models as k8s

from slipway.airflow.starting import StepPodManager, StepPodTrigger, look_interval_s
from tests.fakes.kube.kubernetes_pods import PodEnd, status
from tests.support.waiting import until

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
    moving = trigger(datetime.now(UTC) + timedelta(hours=1))

    assert moving.poll_interval == 0.25
    assert StepPodTrigger(**moving.serialize()[1]).serialize()[1]["poll_interval"] == 2


def test_a_triggerer_that_starts_again_does_not_look_at_old_pods_as_often_as_at_new_ones():
    assert StepPodTrigger(**trigger(datetime.now(UTC) - timedelta(hours=1)).serialize()[1]).poll_interval == 2


def deferred(runs, step="build"):
    """The trigger of a step whose pod runs, as the triggerer makes it."""
    runs.planned()
    runs.ends(None, phase="Running")
    operator = runs.operator(step)
    operator.deferrable = True
    ExecutorSafeguard.tracker.set(operator)
    with pytest.raises(TaskDeferred) as caught:
        operator.execute(runs.context(operator))
    runs.cluster.asked.clear()
    return StepPodTrigger(**caught.value.trigger.serialize()[1])


def event(trigger):
    async def first():
        return (await anext(trigger.run())).payload

    return asyncio.run(first())


def looks(runs):
    """How often a pod was read, and how often it was watched."""
    watches = [each for each in runs.cluster.asked if "?watch" in each]
    return len(runs.cluster.asked) - len(watches), len(watches)


def ends(exit_code=0):
    return lambda pod: pod.update(status=status(PodEnd(exit_code), datetime.now(UTC)))


@pytest.mark.parametrize(("exit_code", "expected"), [(0, "success"), (70, "failed")])
def test_the_triggerer_is_told_of_a_pods_end_and_does_not_ask(runs, exit_code, expected):
    trigger = deferred(runs)

    def works(pod):
        time.sleep(1.0)  # in which it would have looked four times
        ends(exit_code)(pod)

    runs.cluster.during_watch = works

    assert event(trigger)["status"] == expected
    assert looks(runs) == (5, 1)


def test_a_watch_whose_time_is_up_is_renewed(runs):
    trigger, watched = deferred(runs), []

    def works(pod):
        watched.append(pod)
        if len(watched) == 3:
            ends()(pod)

    runs.cluster.during_watch = works

    assert event(trigger)["status"] == "success"
    assert looks(runs)[1] == 3


def test_the_end_of_a_pod_that_may_not_be_watched_is_noticed_by_looking(runs):
    trigger = deferred(runs)
    runs.cluster.watch_refusal = 'pods is forbidden: User "airflow" cannot watch resource "pods"'

    def ended_after_the_second_refusal():
        until(lambda: looks(runs)[1] >= 2)
        for pod in runs.cluster.pods.values():
            ends()(pod)

    async def both():
        later = asyncio.to_thread(ended_after_the_second_refusal)
        return (await asyncio.gather(anext(trigger.run()), later))[0].payload

    assert asyncio.run(both())["status"] == "success"
    assert looks(runs)[1] >= 2


def test_a_pod_that_is_deleted_while_it_is_watched_is_reported_at_once(runs):
    trigger = deferred(runs)
    runs.cluster.during_watch = lambda _: runs.cluster.pods.clear()

    payload = event(trigger)

    assert payload["status"] == "error"
    assert "404" in payload["message"]
    assert looks(runs)[1] == 1


def test_a_watched_pod_is_given_up_when_its_task_has_used_up_its_time(runs):
    trigger = deferred(runs)
    trigger.trigger_kwargs["_execution_deadline"] = time.time() + 1
    runs.cluster.during_watch = lambda _: time.sleep(2)

    assert event(trigger)["status"] == "timeout"


class Supervisor:
    """The other end of a triggerer's runner: it gets messages, and answers with triggers to start."""

    def __init__(self):
        self.messages = []

    async def asend(self, message):
        self.messages.append(message)
        return messages.TriggerStateSync(to_create=[], to_cancel={7})


@pytest.fixture
def runner():
    made = TriggerRunner()
    made.comms_decoder = Supervisor()
    before = signal.signal(signal.SIGTERM, made._handle_signal)
    yield made
    signal.signal(signal.SIGTERM, before)


def run_in(runner, trigger):
    """Run the trigger as the triggerer does, but without the round that it makes once a second."""

    async def to_its_end():
        runner.triggers[1] = {"task": asyncio.current_task(), "is_watcher": False, "name": "demo", "events": 0}
        await runner.run_trigger(1, trigger)

    asyncio.run(to_its_end())


def test_the_triggerer_passes_a_pods_end_on_at_once(runs, runner):
    trigger = deferred(runs)
    runs.cluster.during_watch = ends()

    run_in(runner, trigger)

    (message,) = runner.comms_decoder.messages
    assert [(each.trigger_id, each.event.payload["status"]) for each in message.events] == [(1, "success")]
    assert not runner.events
    assert list(runner.to_cancel) == [7]  # what the answer asks for is done in the next round


def test_events_that_were_taken_off_and_not_sent_are_put_back(runs, runner):
    async def sync_state_to_supervisor(finished_ids):
        runner.process_trigger_events(finished_ids=finished_ids)
        raise RuntimeError("no answer")

    trigger = deferred(runs)
    runs.cluster.during_watch = ends()
    runner.sync_state_to_supervisor = sync_state_to_supervisor

    run_in(runner, trigger)

    assert [each.event.payload["status"] for each in runner.events] == ["success"]


def test_an_event_that_cannot_be_sent_at_once_waits_for_the_next_round(runs, runner):
    trigger = deferred(runs)
    runs.cluster.during_watch = ends()
    runner.sync_state_to_supervisor = None  # as in an Airflow that has no such method

    run_in(runner, trigger)

    assert [each.event.payload["status"] for each in runner.events] == ["success"]
