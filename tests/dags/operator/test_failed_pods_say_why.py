"""The task's error when its pod did not end by itself, awaited in the task and in the triggerer."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from airflow.providers.cncf.kubernetes.utils.pod_manager import PodManager
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from slipway.airflow import starting
from slipway.airflow.starting import StepPodTrigger
from tests.fakes.kube.kubernetes_pods import PodEnd, status

SCHEDULED = [{"type": "PodScheduled", "status": "True"}]
BAD_IMAGE = {
    "phase": "Pending",
    "conditions": SCHEDULED,
    "containerStatuses": [
        {
            "name": "base",
            "image": "tasks:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {
                "waiting": {
                    "reason": "InvalidImageName",
                    "message": 'Failed to apply default image tag "tasks:": invalid reference format',
                }
            },
        }
    ],
}
EVICTED = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ',
    "containerStatuses": [
        {
            "name": "base",
            "image": "tasks:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {
                "terminated": {
                    "exitCode": 137,
                    "reason": "ContainerStatusUnknown",
                    "message": "The container could not be located when the pod was terminated",
                }
            },
        }
    ],
}


def awaited_in_the_task(runs, step):
    runs.execute(step)


def awaited_in_the_triggerer(runs, step):
    operator = runs.operator(step)
    operator.deferrable = True
    ExecutorSafeguard.tracker.set(operator)
    context = runs.context(operator)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context)
    path, arguments = deferred.value.trigger.serialize()
    assert path == "slipway.airflow.starting.StepPodTrigger"
    runs.deferred()
    operator.trigger_reentry(context, asyncio.run(event_of(StepPodTrigger(**arguments))))


async def event_of(trigger):
    return (await anext(trigger.run())).payload


both_ways = pytest.mark.parametrize("awaited", [awaited_in_the_task, awaited_in_the_triggerer])


@both_ways
def test_a_pod_that_can_never_start_fails_the_task_at_once_and_goes(runs, awaited):
    runs.planned()
    runs.cluster.script = lambda _: PodEnd(status=BAD_IMAGE)

    with pytest.raises(AirflowFailException, match="build: container base cannot start: InvalidImageName") as caught:
        awaited(runs, "build")

    assert "Correct the image in the site file" in str(caught.value)
    assert runs.cluster.pods == {}


@both_ways
def test_an_evicted_pod_names_the_volume_that_was_full_and_is_not_tried_again(runs, awaited):
    runs.planned()
    runs.cluster.script = lambda _: PodEnd(status=EVICTED)

    with pytest.raises(
        AirflowFailException, match=r'build: the pod was evicted .*volume "scratch" exceeds the limit "1Gi"'
    ):
        awaited(runs, "build")


@both_ways
def test_a_killed_container_is_tried_again_and_its_log_is_not_the_reason(runs, awaited):
    runs.planned()
    runs.ends(None, exit_code=137, reason="Error", message="12:00:02 INFO 4 of 9 GiB")

    with pytest.raises(AirflowException, match=r"build: container base was killed by signal 9 \(SIGKILL\)") as caught:
        awaited(runs, "build")

    assert not isinstance(caught.value, AirflowFailException)
    assert "Airflow tries again" in str(caught.value)


def ended_by_the_node(reason, message):
    """The status of a pod whose node said this of its end."""
    return {**EVICTED, "reason": reason, "message": message}


@both_ways
@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. "),
        ("Terminated", "Pod was terminated in response to imminent node shutdown."),
    ],
)
def test_a_pod_whose_node_is_gone_or_too_full_is_tried_again_and_quoted(runs, awaited, reason, message):
    runs.planned()
    runs.cluster.script = lambda _: PodEnd(status=ended_by_the_node(reason, message))

    with pytest.raises(AirflowException, match=r"^build: ") as caught:
        awaited(runs, "build")

    assert message.strip().rstrip(".") in str(caught.value)
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize("moment", ["as it is created", "while it works"])
def test_a_pod_that_vanishes_is_named_instead_of_a_number(runs, moment):
    runs.planned()
    runs.ends(None, phase="Running", gone=moment == "as it is created")
    runs.cluster.during_log = runs.cluster.pods.clear

    with pytest.raises(AirflowException, match=r"gate: pod slipway/demo-\S+ no longer exists") as caught:
        runs.execute("gate")

    assert not isinstance(caught.value, AirflowFailException)
    assert "404" not in str(caught.value)


def test_a_node_that_does_not_answer_for_a_while_costs_the_log_and_not_the_step(runs, monkeypatch):
    monkeypatch.setattr(PodManager.read_pod_logs.retry, "sleep", lambda _: None)
    runs.planned()
    runs.ends(runs.result("build"), phase="Running")
    runs.cluster.unread_logs, began = 6, datetime.now(UTC)

    def end():
        for pod in runs.cluster.pods.values():
            pod["status"] = status(PodEnd(), began)

    runs.cluster.during_log = end
    runs.execute("build")

    assert runs.xcoms["build", "return_value"]["outcome"] == "done"
    assert len(runs.cluster.created) == 1


TAINTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
TAINTED["message"] = "Taint manager: deleting due to NoExecute taint"


def leaves(pod, seconds, grace_s=30):
    """Let a pod be deleted, as from a node that does not answer, whose grace period ends in so many seconds.

    So says the clock of the API server, which need not be Airflow's.
    """
    pod["metadata"]["deletionTimestamp"] = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    pod["metadata"]["deletionGracePeriodSeconds"] = grace_s
    pod["status"]["conditions"] = [TAINTED]


@both_ways
@pytest.mark.parametrize("ahead_s", [-3600, 3600], ids=["behind", "ahead"])
@pytest.mark.parametrize(
    ("conditions", "said"), [([TAINTED], "Taint manager: deleting"), ([], r"pod slipway/demo-\S+ was to end by ")]
)
def test_a_deleted_pod_whose_node_stays_silent_leaves_its_place_to_the_next_try(
    runs, monkeypatch, awaited, conditions, said, ahead_s
):
    monkeypatch.setattr(PodManager.read_pod_logs.retry, "sleep", lambda _: None)
    passing = itertools.count(0, 50)
    monkeypatch.setattr(starting, "Deletion", partial(starting.Deletion, clock=lambda: next(passing)))
    runs.planned()
    runs.ends(None, phase="Running")
    runs.cluster.unread_logs = 1000

    def lost(*_):
        for name, pod in runs.cluster.pods.items():
            leaves(pod, ahead_s)
            pod["status"]["conditions"] = conditions
            runs.cluster.lingering.add(name)

    runs.deferred, runs.cluster.during_unread_log = lost, lost
    with pytest.raises(AirflowException, match=f"build: .*{said}") as caught:
        awaited(runs, "build")
    assert not isinstance(caught.value, AirflowFailException)

    runs.cluster.unread_logs, runs.deferred = 0, lambda: None
    runs.ends(runs.result("build"))
    awaited(runs, "build")
    assert runs.xcoms["build", "return_value"]["outcome"] == "done"
    assert len(runs.cluster.created) == 2


@pytest.mark.parametrize("ends_in_s", [-3600, 3600], ids=["Airflow's clock is ahead", "is right"])
def test_a_deleted_pod_may_still_work_until_its_grace_period_is_over(runs, monkeypatch, ends_in_s):
    monkeypatch.setattr(PodManager.read_pod_logs.retry, "sleep", lambda _: None)
    runs.planned()
    runs.ends(runs.result("build"), phase="Running")
    runs.cluster.unread_logs, began = 6, datetime.now(UTC)
    runs.cluster.during_unread_log = lambda: [leaves(pod, ends_in_s, 3600) for pod in runs.cluster.pods.values()]
    runs.cluster.during_log = lambda: [pod.update(status=status(PodEnd(), began)) for pod in runs.cluster.pods.values()]

    runs.execute("build")

    assert runs.xcoms["build", "return_value"]["outcome"] == "done"


PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
PREEMPTED["message"] = "default-scheduler: preempting to accommodate a higher priority pod"


def test_a_pod_that_was_preempted_says_so_when_it_is_gone(runs):
    runs.planned()
    runs.ends(None, phase="Running")

    def preempt():
        for pod in runs.cluster.pods.values():
            pod["status"]["conditions"] = [PREEMPTED]
        runs.cluster.during_log = runs.cluster.pods.clear

    runs.cluster.during_log = preempt
    with pytest.raises(AirflowException, match="gate: the pod was ended from outside: default-scheduler") as caught:
        runs.execute("gate")

    assert not isinstance(caught.value, AirflowFailException)
    assert "PriorityClass" in str(caught.value)


def test_a_pod_that_was_preempted_while_the_triggerer_waits_says_so_when_it_is_gone(runs):
    runs.planned()
    runs.ends(None, phase="Running")

    def preempt(pod):
        pod["status"]["conditions"] = [PREEMPTED]
        runs.cluster.pods.clear()

    runs.cluster.during_watch = preempt
    with pytest.raises(AirflowException, match="gate: the pod was ended from outside: default-scheduler") as caught:
        awaited_in_the_triggerer(runs, "gate")

    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize("moment", ["as it is created", "while it works"])
def test_a_pod_that_vanishes_while_the_triggerer_waits_is_named_as_well(runs, moment):
    runs.planned()
    runs.ends(None, phase="Running", gone=moment == "as it is created")
    runs.deferred = runs.cluster.pods.clear

    with pytest.raises(AirflowException, match=r"gate: pod slipway/demo-\S+ no longer exists") as caught:
        awaited_in_the_triggerer(runs, "gate")

    assert not isinstance(caught.value, AirflowFailException)


@both_ways
def test_a_step_whose_pod_was_lost_succeeds_when_it_is_tried_again(runs, awaited):
    runs.planned()
    runs.ends(None, exit_code=137, reason="Error")
    with pytest.raises(AirflowException):
        awaited(runs, "build")
    runs.ends(runs.result("build"))

    awaited(runs, "build")

    assert runs.xcoms["build", "return_value"]["outcome"] == "done"
    assert len(runs.cluster.created) == 2


# words of Kubernetes 1.36, and what its reader should do
REFUSALS = {
    'pods "demo" is forbidden: violates PodSecurity "restricted:latest": privileged': "level restricted",
    'pods "demo" is forbidden: [maximum memory usage per Container is 512Mi, but limit is 1Gi]': (
        "change it, or the shape small in the site file"
    ),
    'pods "demo" is forbidden: memory max limit to request ratio per Container is 2': "describe limitrange",
    'admission webhook "policy.example.com" denied the request: no latest tags': "webhook policy.example.com forbids it",
    "pods \"demo\" is forbidden: ValidatingAdmissionPolicy 'no-root' with binding 'all' denied request: root": (
        "ValidatingAdmissionPolicy no-root forbids it"
    ),
    'pods "demo" is forbidden: failed quota: site: must specify limits.cpu for: base': "ResourceQuota site",
    'pods "demo" is forbidden: error looking up service account slipway/slipway-measurer: serviceaccount '
    '"slipway-measurer" not found': "Apply k8s_manifests",
    'pods is forbidden: User "someone" cannot create resource "pods" in API group "" in the namespace "slipway"': (
        "service account slipway-airflow"
    ),
    'pods "demo" is forbidden: unable to create new content in namespace slipway because it is being terminated': (
        "Namespace slipway is being deleted"
    ),
    "something that no version of Kubernetes says": "Change what the cluster names",
}


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("said", REFUSALS)
def test_a_cluster_that_refuses_the_pod_is_quoted_and_not_asked_again(runs, said, deferrable):
    runs.planned()
    runs.cluster.refusal = said
    operator = runs.operator("benchmark")
    operator.deferrable = deferrable
    ExecutorSafeguard.tracker.set(operator)

    with pytest.raises(AirflowFailException, match="benchmark: the cluster rejected a request: ") as caught:
        operator.execute(runs.context(operator))

    assert said in str(caught.value)
    assert REFUSALS[said] in str(caught.value)


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_quota_without_room_for_as_long_as_for_a_node_is_tried_again(runs, deferrable):
    runs.planned()
    runs.cluster.refusal = 'pods "demo" is forbidden: exceeded quota: slipway, requested: pods=1, used: pods=40'
    operator = runs.operator("build")
    operator.deferrable, operator.schedule_timeout_seconds = deferrable, 0
    ExecutorSafeguard.tracker.set(operator)

    with pytest.raises(AirflowException, match=r"build: pod \S+ waited \d+ s for room in a quota") as caught:
        operator.execute(runs.context(operator))

    assert "exceeded quota: slipway" in str(caught.value)
    assert not isinstance(caught.value, AirflowFailException)
